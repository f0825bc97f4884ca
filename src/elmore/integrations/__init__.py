"""Doors to the libraries where people already work: one thin file for each."""
