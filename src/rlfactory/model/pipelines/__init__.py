"""Diffusers pipelines: loading, prompt encoding, guidance; shared by the image adapters."""
