"""Tests of elmore.embedding."""
