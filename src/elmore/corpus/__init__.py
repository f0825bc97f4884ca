"""From raw text to shards of word ids, ready for training."""
