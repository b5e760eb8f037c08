"""Installed packages: hashed locks and their audit (docs/decisions/0019-locks-carry-hashes.md)."""
