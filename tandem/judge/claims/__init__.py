"""The claims of the post of April 2026, row by row, as data, and their loader."""
