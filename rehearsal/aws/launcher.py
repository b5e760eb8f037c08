# ruff: noqa: PLC0415, SLF001 - nothing of MiniStack may be imported before its version is checked
"""Starts MiniStack with our additions, in MiniStack's environment; imports nothing of `tandem`.

Invariant: the launcher starts only the version that the additions were tested with, with every
private name that they use.
"""

from __future__ import annotations

import ast
import importlib.metadata
import os
import pathlib
import shutil
import signal
import sys
import threading
import types

WORK_VARIABLE = "TANDEM_AWS_WORK"  # names the directory in the environment of this process
WORK_PREFIX = "tandem-aws-"
START_ERROR = 3  # an external service failed, see the exit codes in docs/decisions


def read_pinned_version() -> str:
    """Return the version of MiniStack from requirements.in, where it is chosen."""
    lines = (pathlib.Path(__file__).parent / "requirements.in").read_text().splitlines()
    return next(line.split("==")[1].strip() for line in lines if line.startswith("ministack=="))


def list_used_names(module: types.ModuleType) -> list[tuple[types.ModuleType, str]]:
    """Return each name of MiniStack that a module's source uses, with the module that has it."""
    source = pathlib.Path(str(module.__file__)).read_text()
    used_names = {
        (node.value.id, node.attr)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    owners = [(getattr(module, name, None), attribute) for name, attribute in sorted(used_names)]
    return [
        (owner, attribute)
        for owner, attribute in owners
        if isinstance(owner, types.ModuleType) and owner.__name__.startswith("ministack")
    ]


def find_refusals(
    installed_version: str, wanted_version: str, needs: list[tuple[types.ModuleType, str]]
) -> list[str]:
    """Return why the additions do not fit this MiniStack; empty if they do.

    Args:
        needs: pairs of a module and a name that an addition uses of it.
    """
    if installed_version != wanted_version:
        fault = (
            f"ministack {installed_version} is installed, the additions are tested with"
            f" {wanted_version}"
        )
        return [fault]
    absent_names = [
        f"{module.__name__} has no {name} in ministack {installed_version}"
        for module, name in needs
        if not hasattr(module, name)
    ]
    return list(dict.fromkeys(absent_names))


def main() -> int:
    """Check MiniStack, install the additions, serve until a signal ends the process."""
    installed_version = importlib.metadata.version("ministack")
    reasons = find_refusals(installed_version, read_pinned_version(), [])
    if not reasons:
        try:
            reasons = _install_additions(installed_version)
        except (ImportError, AttributeError, KeyError) as error:
            reasons = [f"an addition does not load: {error}"]
    for reason in reasons:
        print(f"the local AWS endpoint does not start: {reason}", file=sys.stderr, flush=True)
    if reasons:
        return START_ERROR
    starter_gone = threading.Event()
    threading.Thread(target=_stop_with_starter, args=[starter_gone], daemon=True).start()
    from ministack import app

    try:
        app.main()
    finally:
        if starter_gone.is_set():
            _remove_work_folder(os.environ.get(WORK_VARIABLE, ""))
    return 0


def _remove_work_folder(work_folder: str) -> None:
    """Remove the directory that the starter, now gone, made for us; never remove another one."""
    if pathlib.Path(work_folder).name.startswith(WORK_PREFIX):
        shutil.rmtree(work_folder, ignore_errors=True)


def _stop_with_starter(starter_gone: threading.Event) -> None:
    """End by SIGTERM when stdin closes: the starter holds its other end, even if killed."""
    sys.stdin.buffer.read()
    starter_gone.set()
    os.kill(os.getpid(), signal.SIGTERM)


def _install_additions(installed_version: str) -> list[str]:
    import additions  # type: ignore[import-not-found]  # a sibling here, where `tandem` is not
    from additions import handlers
    from ministack.services.cloudformation import provisioners

    needs = []
    for module in (handlers, *additions.MODULES):
        needs += list_used_names(module)
    reasons = find_refusals(installed_version, installed_version, needs)
    if not reasons:
        for module in additions.MODULES:
            module.install(provisioners._RESOURCE_HANDLERS)
    return reasons


if __name__ == "__main__":
    sys.exit(main())
