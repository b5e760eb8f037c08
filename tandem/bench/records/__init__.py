"""What a run leaves on disk: its records, and the files beside them."""
