"""Sessions: the runtime, agent servers, what people see of them and what is saved."""
