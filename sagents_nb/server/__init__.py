"""Agents that live on: the runtime thread, agent servers, sessions, and what they need of a store."""
