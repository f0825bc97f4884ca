"""The arithmetic: kernels with their numpy reference, and the network in numpy."""
