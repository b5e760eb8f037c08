"""`list`: every model and artifact of a bucket, with its state, size and age.

Invariant: the state is what a listing of the bucket shows; that the bytes are right is for `verify` to say.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Literal

from tandem.artifacts.contents import Kind, StoredSet, contents
from tandem.artifacts.manifest import NewerSchemaError
from tandem.artifacts.room import spoken
from tandem.artifacts.store import Store, open_store

State = Literal["whole", "damaged", "partial", "newer"]
DAY_S = 86_400
HOUR_S = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRow:
    """One model or artifact as it stands.

    Args:
        kind, name: a model's id@revision, or an artifact key's name.
        state: `whole` has a manifest and every file of it; `damaged` lacks one, or has one of another size;
            `partial` has no manifest yet; `newer` has a manifest that only a newer release can read.
        why: what is damaged, or who writes it until when; empty otherwise.
        size: bytes of all its objects, those of other runs too.
        age_s: seconds since something of it was last written, by S3's clock.
    """

    kind: Kind
    name: str
    state: State
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
        ArtifactError: the bucket cannot be listed.
    """
    found = rows(open_store(options.bucket))
    if options.json:
        lines = [json.dumps(asdict(row), ensure_ascii=False) for row in found]
    else:
        lines = [_line(row) for row in found] or ["nothing is stored"]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def rows(store: Store) -> tuple[StoredRow, ...]:
    """Return a row for every stored set, models first, by name.

    Raises:
        ArtifactError: the bucket cannot be listed.
    """
    found, now = contents(store), store.now()
    return tuple(_row(one, now) for one in sorted(found, key=lambda one: (one.kind != "model", one.name)))


def _row(found: StoredSet, now: datetime) -> StoredRow:
    state, why = _judged(found)
    age_s = max(0, round((now - found.written).total_seconds()))
    return StoredRow(kind=found.kind, name=found.name, state=state, why=why, size=found.size, age_s=age_s)


def _judged(found: StoredSet) -> tuple[State, str]:
    if isinstance(found.fault, NewerSchemaError):
        return "newer", found.fault.what
    if found.damage:
        return "damaged", found.damage
    if found.manifest is not None:
        return "whole", ""
    if found.lease_fault is not None:
        return "partial", found.lease_fault.what
    if found.lease is not None and found.lease.held:
        return "partial", f"held by {found.lease.holder} until {found.lease.until:%Y-%m-%dT%H:%M:%SZ}"
    return "partial", "no manifest, and nobody writes it"


def _line(row: StoredRow) -> str:
    age = f"{row.age_s / DAY_S:.0f} d" if row.age_s >= DAY_S else f"{row.age_s / HOUR_S:.1f} h"
    said = f"{row.state:8} {row.kind:8} {row.name}  {spoken(row.size)}, {age} old"
    return f"{said}: {row.why}" if row.why else said
