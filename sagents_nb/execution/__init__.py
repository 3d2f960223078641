"""One leg of a run: the loop, its steps, and the record of what happened."""
