"""Teardown of an environment: look, confirm, delete stack by stack, and search for leftovers.

Invariant: all state is in AWS. Each step looks at the world and does the missing work, so another
run can follow a run that was cut off anywhere. Nothing is deleted before its tags say that it is
this environment's.
"""
