"""Readers of labelled data."""
