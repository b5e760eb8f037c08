"""The project's installed packages: locks with hashes, and their audit (docs/decisions/0019-locks-carry-hashes.md)."""
