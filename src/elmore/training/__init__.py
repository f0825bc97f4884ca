"""Training: from text files to a biLM."""
