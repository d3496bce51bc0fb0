"""Where images come from, and in which order they arrive."""
