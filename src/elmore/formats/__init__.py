"""Model formats: each module reads one, some write it, and all share `Checkpoint`."""
