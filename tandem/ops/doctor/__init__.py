"""Checks before any money is spent: whether an environment can be deployed and raised.

Invariant: the account is only read, by the calls of `doctor` in tandem/ops/people/rights.py and no
others. State that could not be read is `unknown` and never `ok`. One check that cannot be made
stops no other.
"""
