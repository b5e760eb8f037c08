"""`list`: every model and artifact of a bucket, with its state, size and age.

Invariant: the state is what a listing of the bucket shows; that the bytes are right is for `verify` to say.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime

from tandem.artifacts.files import format_bytes
from tandem.artifacts.inventory import Condition, Kind, StoredSet, read_inventory
from tandem.artifacts.job_env import add_bucket_argument
from tandem.artifacts.store import open_store
from tandem.errors import ExternalError

DAY_S = 86_400
HOUR_S = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRow:
    """One model or artifact as it stands.

    Args:
        kind, name: a model's id@revision, or an artifact key's name.
        state: as `StoredSet.condition` tells it.
        why: what is damaged or was not read, or who writes it until when; empty for a whole one.
        size: bytes of all its objects, those of other runs too.
        age_s: seconds since something of it was last written, by S3's clock.
    """

    kind: Kind
    name: str
    state: Condition
    why: str
    size: int
    age_s: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    add_bucket_argument(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run(options: argparse.Namespace) -> int:
    """Print what is stored; the exit code.

    Raises:
        TandemError: the bucket cannot be listed, or did not give a manifest; then the rows are printed first.
    """
    store = open_store(options.bucket)
    stored_sets = read_inventory(store)
    rows = build_rows(stored_sets, store.now())
    if options.json:
        lines = [json.dumps(asdict(row), ensure_ascii=False) for row in rows]
    else:
        lines = [_format_row(row) for row in rows] or ["nothing is stored"]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    for stored_set in stored_sets:
        if isinstance(stored_set.fault, ExternalError):
            raise stored_set.fault
    return 0


def build_rows(stored_sets: Iterable[StoredSet], now: datetime) -> tuple[StoredRow, ...]:
    """Return a row for every stored set, models first, by name; `now` is S3's time."""
    return tuple(
        StoredRow(
            kind=stored_set.kind,
            name=stored_set.name,
            state=stored_set.condition,
            why=stored_set.damage or ("" if stored_set.condition == "whole" else stored_set.writer),
            size=stored_set.size,
            age_s=max(0, round((now - stored_set.last_write_at).total_seconds())),
        )
        for stored_set in sorted(stored_sets, key=lambda stored_set: (stored_set.kind != "model", stored_set.name))
    )


def _format_row(row: StoredRow) -> str:
    age = f"{row.age_s / DAY_S:.0f} d" if row.age_s >= DAY_S else f"{row.age_s / HOUR_S:.1f} h"
    text = f"{row.state:8} {row.kind:8} {row.name}  {format_bytes(row.size)}, {age} old"
    return f"{text}: {row.why}" if row.why else text
