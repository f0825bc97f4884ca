"""The torch layers that tasks are built from."""
