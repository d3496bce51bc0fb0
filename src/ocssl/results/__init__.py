"""Results: read, compared with the paper, rendered."""
