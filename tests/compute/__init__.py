"""Tests of elmore.compute."""
