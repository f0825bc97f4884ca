"""Files of vectors."""
