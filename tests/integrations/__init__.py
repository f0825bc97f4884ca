"""The doors to other libraries."""
