"""The six task models of the paper."""
