"""Inputs that no text can hold: models, tokenizers, pipelines and adapters as strangers save them.

Each function takes the path that it writes, and is named by the cases that need it.
"""
