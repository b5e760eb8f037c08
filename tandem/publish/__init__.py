"""Records to CloudWatch and S3: what the bench measured, published exactly once.

Invariant: knows a run's folder as figures and ranges of bytes; reads neither records nor declared files.
"""

from __future__ import annotations

from tandem.publish.batch import Batch, Cell, Datum, Round, Slice, batches
from tandem.publish.cloudwatch import Retries
from tandem.publish.fault import PublishError, RefusedError
from tandem.publish.publisher import Publisher
from tandem.publish.run import Report, Run, Settings
from tandem.publish.services import CALLS, Limits, Services, connect
from tandem.publish.settle import Delays, Rounds
from tandem.publish.whole import publish

__all__ = [
    "CALLS", "Batch", "Cell", "Datum", "Delays", "Limits", "PublishError", "Publisher", "RefusedError", "Report",
    "Retries", "Round", "Rounds", "Run", "Services", "Settings", "Slice", "batches", "connect", "publish",
]  # fmt: skip
