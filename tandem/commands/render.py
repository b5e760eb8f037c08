"""`tandem render`: write the manifests that GitOps syncs, or say which are stale."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tandem.commands.inputs import legal
from tandem.commands.outcome import Exit, counted, print_json, verdict
from tandem.commands.selection import Selection, add_names


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    add_names(parser)
    parser.add_argument("--out", type=Path, default=Path("manifests"), metavar="DIR", help="folder to write below")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is stale")


def render(chosen: Selection, out: Path, *, check: bool) -> Exit:
    """Render the named environments (all when none is) below `out`; with `check` compare and write nothing.

    Raises:
        SpecError: a spec is refused, or with `strict` warned of.
    """
    inputs = legal(chosen)
    import _node  # noqa: F401, PLC0415  # points jsii at the packaged Node before cdk8s starts it
    from charts import tree  # noqa: PLC0415  # starts Node: only a command that renders pays for it

    changed: list[str] = []
    for environment in inputs.environments():
        act = tree.stale if check else tree.render
        changed += [str(path) for path in act(environment, inputs.hosted(environment), inputs.catalogue, out)]
    orphans = [] if chosen.names else tree.orphans(inputs.workspace.environments, out)
    code = Exit.STALE if check and (changed or orphans) else verdict(inputs.faults, strict=chosen.strict)
    if chosen.as_json:
        print_json(
            {"out": str(out), "stale" if check else "written": changed, "orphans": orphans, "exit_code": int(code)}
        )
        return code
    if inputs.faults:
        print(f"{counted(len(inputs.faults), 'warning')}: `tandem check` lists them", file=sys.stderr)
    for path in changed:
        print(f"{_done(out / path, check=check)} {path}")
    for name in orphans:
        print(f"orphan {name}: no environment has this name; GitOps would go on syncing it: delete {out / name}")
    verb = "stale" if check else "changed"
    print(f"{counted(len(inputs.environments()), 'environment')}: {counted(len(changed), 'file')} {verb} in {out}")
    return code


def _done(path: Path, *, check: bool) -> str:
    if check:
        return "stale"
    return "wrote" if path.exists() else "removed"
