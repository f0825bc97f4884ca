"""Containers and codecs of model files: HDF5, safetensors, zip, tar, torch and TensorFlow."""
