"""What the post of April 2026 claims, row by row, as data, and its loader."""
