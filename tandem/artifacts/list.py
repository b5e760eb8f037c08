"""`list`: every model and artifact of a bucket, with its state, size and age.

Invariant: the state is what a listing of the bucket shows; that the bytes are right is for `verify` to say.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime

from tandem.artifacts.contents import Condition, Kind, StoredSet, contents
from tandem.artifacts.fault import WorldError
from tandem.artifacts.room import spoken
from tandem.artifacts.store import open_store

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
    bucket = os.environ.get("TANDEM_BUCKET")
    parser.add_argument("--bucket", default=bucket, required=not bucket, help="bucket of models and artifacts")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run(options: argparse.Namespace) -> int:
    """Print what is stored; the exit code.

    Raises:
        ArtifactError: the bucket cannot be listed, or did not give a manifest; then the rows are printed first.
    """
    store = open_store(options.bucket)
    stored = contents(store)
    found = rows(stored, store.now())
    if options.json:
        lines = [json.dumps(asdict(row), ensure_ascii=False) for row in found]
    else:
        lines = [_line(row) for row in found] or ["nothing is stored"]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    unread = next((one.fault for one in stored if isinstance(one.fault, WorldError)), None)
    if unread is not None:
        raise unread
    return 0


def rows(stored: Iterable[StoredSet], now: datetime) -> tuple[StoredRow, ...]:
    """Return a row for every stored set, models first, by name; `now` is S3's time."""
    return tuple(_row(one, now) for one in sorted(stored, key=lambda one: (one.kind != "model", one.name)))


def _row(found: StoredSet, now: datetime) -> StoredRow:
    why = found.damage or ("" if found.condition == "whole" else found.writer)
    age_s = max(0, round((now - found.written).total_seconds()))
    return StoredRow(kind=found.kind, name=found.name, state=found.condition, why=why, size=found.size, age_s=age_s)


def _line(row: StoredRow) -> str:
    age = f"{row.age_s / DAY_S:.0f} d" if row.age_s >= DAY_S else f"{row.age_s / HOUR_S:.1f} h"
    said = f"{row.state:8} {row.kind:8} {row.name}  {spoken(row.size)}, {age} old"
    return f"{said}: {row.why}" if row.why else said
