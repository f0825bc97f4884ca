"""Taggers and classifiers for your own data."""
