"""The forms in which pictures are kept on disk, one file each."""
