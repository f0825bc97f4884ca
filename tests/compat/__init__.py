"""Old code after one changed import."""
