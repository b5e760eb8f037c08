"""Whether an environment can be deployed and raised in its account, asked before any money is spent.

Invariant: the account is only read, by the calls of `doctor` in tandem/ops/people/rights.py and no others; what could
not be read is `unknown` and never `ok`; one check that cannot be made keeps no other from being made.
"""
