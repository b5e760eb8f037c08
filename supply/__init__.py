"""What this project installs: locks with hashes, made, read and audited (docs/decisions/0018-locks-carry-hashes.md)."""
