"""Text: from strings to the arrays that a biLM reads."""
