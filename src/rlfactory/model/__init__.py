"""Image and language models behind the contracts in `base` and `text_base`."""
