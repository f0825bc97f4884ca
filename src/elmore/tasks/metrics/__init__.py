"""Standard scores of the six tasks."""
