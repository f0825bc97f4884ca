"""Model files of every kind, read into and written from one checkpoint."""
