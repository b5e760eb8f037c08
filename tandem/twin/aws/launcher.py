# ruff: noqa: PLC0415, SLF001 - nothing of MiniStack may be imported before its version is checked
"""Starts MiniStack with our additions. Runs inside MiniStack's own environment, so it imports nothing of `tandem`.

The invariant: either the version that the additions were tested with, with every private name that they touch, or no
start at all.
"""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import shutil
import signal
import sys
import threading
import types

WORK = "TANDEM_AWS_WORK"  # names the directory in the environment of this process
PREFIX = "tandem-aws-"
REFUSED = 3  # the world outside failed, see the exit codes in docs/decisions


def pinned() -> str:
    """The version of MiniStack in requirements.in, where it is chosen."""
    lines = (pathlib.Path(__file__).parent / "requirements.in").read_text().splitlines()
    return next(line.split("==")[1].strip() for line in lines if line.startswith("ministack=="))


def refusals(installed: str, wanted: str, needs: list[tuple[types.ModuleType, tuple[str, ...]]]) -> list[str]:
    """Why the additions cannot be put onto this MiniStack; empty where they can.

    Args:
        needs: pairs of a module and the private names that an addition uses of it.
    """
    if installed != wanted:
        return [f"ministack {installed} is installed, the additions are tested with {wanted}"]
    missing = [
        f"{module.__name__} has no {name} in ministack {installed}"
        for module, names in needs
        for name in names
        if not hasattr(module, name)
    ]
    return list(dict.fromkeys(missing))


def main() -> int:
    """Check, put the additions on, serve until told to end."""
    installed = importlib.metadata.version("ministack")
    found = refusals(installed, pinned(), [])
    if not found:
        try:
            found = _install(installed)
        except (ImportError, AttributeError, KeyError) as fault:
            found = [f"an addition does not load: {fault}"]
    for reason in found:
        print(f"the local AWS endpoint does not start: {reason}", file=sys.stderr, flush=True)
    if found:
        return REFUSED
    left = threading.Event()
    threading.Thread(target=_end_with_starter, args=[left], daemon=True).start()
    from ministack import app

    try:
        app.main()
    finally:
        if left.is_set():
            _tidy(os.environ.get(WORK, ""))
    return 0


def _tidy(work: str) -> None:
    """Remove the directory that the starter made for us; it is not there any more to do so. Never any other."""
    if pathlib.Path(work).name.startswith(PREFIX):
        shutil.rmtree(work, ignore_errors=True)


def _end_with_starter(left: threading.Event) -> None:
    """Whoever started this holds the other end of stdin; when it closes, even by a kill, end as if asked to."""
    sys.stdin.buffer.read()
    left.set()
    os.kill(os.getpid(), signal.SIGTERM)


def _install(installed: str) -> list[str]:
    import additions  # type: ignore[import-not-found]  # a sibling here, where `tandem` is not
    from additions import handlers
    from ministack.services.cloudformation import provisioners

    modules = (handlers, *additions.MODULES)
    found = refusals(installed, installed, [pair for module in modules for pair in module.NEEDS.items()])
    if not found:
        for module in additions.MODULES:
            module.install(provisioners._RESOURCE_HANDLERS)
    return found


if __name__ == "__main__":
    sys.exit(main())
