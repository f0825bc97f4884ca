"""The service, from single functions to a process that is told to stop."""
