"""What is trained: adapters that give every model the same few verbs."""
