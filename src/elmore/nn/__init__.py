"""Torch modules, losses and autograd code: what learns, and what runs on a GPU."""
