"""The output folder of a run: when it may be used, and by one run at a time.

Invariant: a folder that exists is never written to unless the user said --resume; a run that could not begin leaves
none behind, so that the same command can be given again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from tandem.bench import manifest
from tandem.bench.fault import BenchError, convert_os_errors
from tandem.shell_command import quote_command

RECORDS_FILE, WARM_UP_FILE = "records.jsonl", "warmup.jsonl"


def check_folder(folder: Path, *, resume: bool) -> None:
    """Refuse a folder that cannot be used, before anything is asked of a server.

    Raises:
        BenchError: it exists without `resume`, does not with it, or may not be written to.
    """
    with convert_os_errors("it cannot be looked at", folder, "name a place that you may read and write"):
        parent = next(parent for parent in folder.absolute().parents if parent.exists())
        if resume and not (folder / manifest.FILE).is_file():
            problem = f"there is no {manifest.FILE} in it, so there is no run to go on with"
            change = "name the folder that a run wrote, or begin one: --out DIR"
        elif resume and not os.access(folder, os.W_OK | os.X_OK):
            problem, change = "it may not be written to", "give this user the right to, or copy it elsewhere"
        elif not resume and (folder.exists() or folder.is_symlink()):
            problem = "it exists already, and a run never writes over another"
            change = f"name a new folder with --out, or go on with that run: {quote_command('--resume', str(folder))}"
        elif not resume and not (parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)):
            kind = "may not be written to" if parent.is_dir() else "is no folder"
            problem, change = f"it cannot be made: {parent} {kind}", "name a place that you may write to"
        else:
            return
    raise BenchError(problem, where=str(folder), change=change)


@contextlib.contextmanager
def claim_folder(folder: Path, *, resume: bool) -> Iterator[None]:
    """Make the folder, or take it up again; nobody else writes to it meanwhile.

    Raises:
        BenchError: it cannot be made, or another run is writing to it.
    """
    if not resume:
        with convert_os_errors("it cannot be made", folder, "name a new folder, in a place that you may write to"):
            folder.mkdir(parents=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            change = "wait for its end, or stop it first"
            raise BenchError("another run is writing to it", where=str(folder), change=change) from error
        yield
    finally:
        os.close(descriptor)
        if not (folder / manifest.FILE).exists():  # the run could not even write its manifest
            (folder / f"{manifest.FILE}.new").unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # it is not empty, so it is somebody's
                folder.rmdir()
