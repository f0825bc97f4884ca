"""Tests of elmore.kernels."""
