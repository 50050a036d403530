"""From YAML files and overrides to a checked plan. Nothing here imports torch."""
