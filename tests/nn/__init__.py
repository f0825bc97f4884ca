"""Tests of elmore.nn."""
