"""Tests of elmore.language_model."""
