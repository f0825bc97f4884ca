"""Tests of elmore.tasks.layers."""
