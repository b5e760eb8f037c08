"""The fence: `stop.json` in the bucket, behind which nobody may raise the fleet.

It is at the root of an environment's own bucket. In a bucket that the environment file names
(`artifacts.existing_bucket`) it is at `guard/<account>/<region>/<environment>/stop.json`.

Invariant: standard library and boto3 only, because a Lambda packs this file; a fence that cannot be
parsed is closed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Literal, get_args

from tandem.guard import values
from tandem.guard.bucket import MAX_ATTEMPTS, SCHEMA, parse_document, read_object, write_object
from tandem.guard.config import AwsClients, GuardConfig

FENCE_KEY = "stop.json"  # after GuardConfig.prefix, as every key of the guard
MAX_PASSES = 10_000_000  # of the reaper on one fence; a larger number is not ours
FenceState = Literal["stopping", "terminating", "stopped", "lifted"]


@dataclass(frozen=True, kw_only=True)
class Fence:
    """`stop.json`: nobody may raise while it exists and is not lifted.

    Args:
        who: the author of the stop: a person's ARN, `reap`, `budget`.
        run: the run with the live lease, if known.
        at: time of the request for the stop; of the lifting, if the fence is lifted.
        passes: number of passes that worked on the fence.
        last_look: of the latest pass.
        instances: ids in EC2's list at that time.
        terminated: ids that were terminated by id.
        told: the last change of which people were notified.
        told_at: time of that message.
        suspended: Auto Scaling groups in which this stop suspended the launch of instances; a start
            resumes them.
        etag: of the object that was read; empty if none was.
        fault: why the object could not be parsed; it is a fence all the same.
    """

    state: FenceState
    who: str
    why: str
    run: str | None
    at: datetime
    passes: int = 0
    last_look: datetime | None = None
    instances: tuple[str, ...] = ()
    terminated: tuple[str, ...] = ()
    told: str = ""
    told_at: datetime | None = None
    suspended: tuple[str, ...] = ()
    etag: str = ""
    fault: str = ""

    @property
    def is_closed(self) -> bool:
        """Whether the fence forbids a raise."""
        return self.state != "lifted"


def _parse_fence_state(value: Any) -> Any:
    return get_args(FenceState)[get_args(FenceState).index(value)]


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "state": _parse_fence_state,
    **dict.fromkeys(("who", "why"), values.shorten_sentence),
    "run": values.parse_optional_text,
    "at": values.parse_timestamp,
    "passes": partial(values.parse_count, maximum=MAX_PASSES),
    **dict.fromkeys(("last_look", "told_at"), values.parse_optional_timestamp),
    **dict.fromkeys(("instances", "terminated", "suspended"), values.parse_texts),
    "told": values.shorten_text,
}
FENCE_FIELDS = tuple(_PARSERS)


def read_fence(clients: AwsClients, config: GuardConfig) -> Fence | None:
    """Return the fence; one that cannot be parsed is closed.

    Raises:
        CALL_ERRORS: S3 does not answer, or denies the call.
    """
    entry = read_object(clients, config, FENCE_KEY)
    if entry is None:
        return None
    try:
        document = parse_document(entry.body, SCHEMA)
        values_by_name = {name: parse(document[name]) for name, parse in _PARSERS.items()}
        return Fence(**values_by_name, etag=entry.etag)
    except values.PARSE_ERRORS as error:
        url = config.url(FENCE_KEY)
        return Fence(
            state="stopping",
            who="unknown",
            why="stop.json could not be understood",
            run=None,
            at=entry.modified_at,
            etag=entry.etag,
            fault=f"{url}: not understood ({values.shorten_text(error)}), so it counts as a fence",
        )


def change_fence(
    clients: AwsClients,
    config: GuardConfig,
    fence: Fence | None,
    change: Callable[[Fence | None], Fence | None],
) -> Fence | None:
    """Write the fence that `change` returns; return the stored one, None if others always won.

    Args:
        fence: the fence as last read.
        change: returns the new fence; None keeps the stored one.

    Raises:
        CALL_ERRORS: S3 does not answer, or denies the call.
    """
    for _ in range(MAX_ATTEMPTS):
        new_fence = change(fence)
        if new_fence is None:
            return fence
        document = values.select_json_fields(new_fence, *FENCE_FIELDS)
        known_etag = fence.etag if fence else ""
        etag = write_object(clients, config, FENCE_KEY, document, etag=known_etag)
        if etag is not None:
            return replace(new_fence, etag=etag)
        fence = read_fence(clients, config)
    return None
