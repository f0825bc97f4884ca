"""The HTTP door: a service, and a page to play with."""
