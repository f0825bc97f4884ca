"""Published models: which there are, how to download them, and how users name their files."""
