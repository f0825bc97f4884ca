"""Doors to the libraries where people already work: one file for each, thin."""
