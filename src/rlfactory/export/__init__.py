"""What leaves a run: its weights for other libraries to open, a card, and how to load them."""
