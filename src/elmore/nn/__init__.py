"""torch modules of the biLM and of its mixes."""
