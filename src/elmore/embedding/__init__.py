"""From text to vectors with a loaded model."""
