"""Takes an environment down: looks, asks, deletes stack by stack, and searches for what is left.

Invariant: nothing is kept but in AWS. Each step looks at the world and does what is missing, so a run that was cut off
anywhere is followed by another one; and nothing is deleted before its tags say that it is this environment's.
"""
