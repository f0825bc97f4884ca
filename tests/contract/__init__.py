"""What the whole package promises."""
