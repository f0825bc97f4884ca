"""Tests of elmore.tasks."""
