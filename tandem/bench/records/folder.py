"""The output folder of a run, used by one run at a time.

Invariant: a run writes to a folder with files only with --resume; a run that could not begin
removes its folder, so the user can repeat the same command.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from tandem.bench.records import manifest
from tandem.errors import InputError, convert_os_errors
from tandem.shell_command import quote_command

RECORDS_FILE = "records.jsonl"
WARM_UP_FILE = "warmup.jsonl"
SYNTHETIC_FILE = "synthetic.jsonl"


@contextlib.contextmanager
def claim_folder(folder: Path, *, resume: bool) -> Iterator[None]:
    """Make the folder, or reuse it, and lock it against other runs.

    Raises:
        InputError: the folder cannot be made, it has files and `resume` is false, or another run is
            writing to it.
    """
    with convert_os_errors(
        "it cannot be made", folder, "name a new folder, in a place that you may write to"
    ):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            change = "wait for its end, or stop it first"
            raise InputError(
                "another run is writing to it", where=str(folder), change=change
            ) from error
        if not resume and any(folder.iterdir()):
            change = (
                "name a new folder with --out, or go on with that run:"
                f" {quote_command('--resume', str(folder))}"
            )
            raise InputError(
                "it exists already, and a run never writes over another",
                where=str(folder),
                change=change,
            )
        try:
            yield
        finally:
            if not (folder / manifest.FILE).exists():  # the run could not even write its manifest
                (folder / f"{manifest.FILE}.new").unlink(missing_ok=True)
                # the folder is not empty, so the files are the user's
                with contextlib.suppress(OSError):
                    folder.rmdir()
    finally:
        os.close(descriptor)
