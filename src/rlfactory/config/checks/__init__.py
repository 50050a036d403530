"""Rules about combinations of choices; `rules.py` lists them."""
