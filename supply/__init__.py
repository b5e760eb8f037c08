"""What this project installs: locks with hashes, made, read and audited (docs/decisions/0019-locks-carry-hashes.md)."""
