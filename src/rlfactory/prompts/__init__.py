"""What is asked of the model: one file for each source of prompts."""
