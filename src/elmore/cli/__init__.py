"""The command line: related verbs share a file."""
