"""Things tests lean on that are not tests themselves."""
