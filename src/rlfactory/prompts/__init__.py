"""Sources of prompts, one file each."""
