"""Whether an environment can be deployed and raised in its account, asked before any money is spent.

Invariant: the account is only read, by the calls of `tandem.ops.doctor.call_policy` and no others; what could not be
read is `unknown` and never `ok`; one check that cannot be made keeps no other from being made.
"""

from __future__ import annotations

from tandem.ops.doctor.context import CheckResult, DoctorContext
from tandem.ops.doctor.runner import exit_code, run_checks

__all__ = ["CheckResult", "DoctorContext", "exit_code", "run_checks"]
