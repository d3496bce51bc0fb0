"""What every package may use: files, console output, signals. Nothing here knows of learning."""
