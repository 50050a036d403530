"""What a run leaves behind: its folder, metrics, pictures, curves and summary."""
