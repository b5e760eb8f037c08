"""Whether an environment can be deployed and raised in its account, asked before any money is spent.

Invariant: the account is only read, by the calls of `tandem.ops.doctor.calls` and no others; what could not be read is
`unknown` and never `ok`; one check that cannot be made keeps no other from being made.
"""

from __future__ import annotations

from tandem.ops.doctor.examine import examine, exit_code
from tandem.ops.doctor.line import Level, Line
from tandem.ops.doctor.subject import Subject

__all__ = ["Level", "Line", "Subject", "examine", "exit_code"]
