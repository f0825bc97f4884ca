"""Attack files, made on the spot, and the tests that they are refused."""
