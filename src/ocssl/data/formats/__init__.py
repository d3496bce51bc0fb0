"""Readers of the formats in which images are kept on disk, one file each."""
