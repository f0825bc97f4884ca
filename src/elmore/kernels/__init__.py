"""Fast paths, each with a plain twin that defines it."""
