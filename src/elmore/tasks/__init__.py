"""Downstream tasks on top of frozen or trained layers."""
