"""A CUDA device that is the CPU in disguise, which records every wait of the host for it."""
