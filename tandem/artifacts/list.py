"""`list`: every model and artifact of a bucket, with its state, size and age.

Invariant: the state is what a listing of the bucket shows; that the bytes are right is for `verify` to say.
"""

from __future__ import annotations

import argparse
import json
import sys

from tandem.artifacts.files import format_bytes
from tandem.artifacts.inventory import find_read_fault, read_inventory
from tandem.artifacts.job_env import add_bucket_argument
from tandem.artifacts.store import open_store

DAY_S = 86_400


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
    stored_sets, now, lines = read_inventory(store), store.now(), list[str]()
    for stored_set in sorted(stored_sets, key=lambda entry: (entry.kind != "model", entry.name)):
        state, kind, name, size = stored_set.condition, stored_set.kind, stored_set.name, stored_set.size
        why = stored_set.damage or ("" if state == "whole" else stored_set.writer)
        age_s = max(0, round((now - stored_set.last_write_at).total_seconds()))
        line = f"{state:8} {kind:8} {name}  {format_bytes(size)}, {age_s / DAY_S:.1f} d old{why and ': '}{why}"
        row = {"kind": kind, "name": name, "state": state, "why": why, "size": size, "age_s": age_s}
        lines.append(json.dumps(row, ensure_ascii=False) if options.json else line)
    if not lines and not options.json:
        lines = ["nothing is stored"]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    if fault := find_read_fault(stored_sets):
        raise fault
    return 0
