"""The biLM as a language model: probabilities, perplexity, scores and likely words."""
