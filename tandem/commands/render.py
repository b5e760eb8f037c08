"""`tandem render`: write the manifests that GitOps syncs, or say which are stale."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from tandem.commands.inputs import legal
from tandem.commands.outcome import Exit, counted, print_json, verdict
from tandem.commands.selection import Selection, add_names
from tandem.shell_command import build_cdk_command
from tandem.spec.environment import Environment, GitopsDelivery
from tandem.spec.experiment import Experiment
from tandem.spec.names import namespace


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

    unbound = {each.name: _unbound(each, inputs.hosted(each), out) for each in inputs.environments()}
    changed: list[str] = []
    for environment in inputs.environments():
        act = tree.stale if check else tree.render
        changed += [str(path) for path in act(environment, inputs.hosted(environment), inputs.catalogue, out)]
    orphans = [] if chosen.names else tree.orphans(inputs.workspace.environments, out)
    code = Exit.STALE if check and (changed or orphans) else verdict(inputs.faults, strict=chosen.strict)
    if chosen.as_json:
        print_json(
            {
                "out": str(out),
                "stale" if check else "written": changed,
                "orphans": orphans,
                "deploy_first": [f"{name}/Workloads" for name, namespaces in unbound.items() if namespaces],
                "exit_code": int(code),
            }
        )
        return code
    if inputs.faults:
        print(f"{counted(len(inputs.faults), 'warning')}: `tandem check` lists them", file=sys.stderr)
    for path in changed:
        print(f"{_done(out / path, check=check)} {path}")
    for name in orphans:
        print(f"orphan {name}: no environment has this name; GitOps would go on syncing it: delete {out / name}")
    for name, namespaces in unbound.items():
        if namespaces:
            print(f"deploy Workloads before this is synced: {build_cdk_command('deploy', name, 'Workloads')}")
            print(f"  until then pods of {', '.join(namespaces)} start without credentials, and keep none")
    verb = "stale" if check else "changed"
    print(f"{counted(len(inputs.environments()), 'environment')}: {counted(len(changed), 'file')} {verb} in {out}")
    return code


def _unbound(environment: Environment, experiments: Iterable[Experiment], out: Path) -> list[str]:
    """Return the namespaces that a GitOps tool would make, and whose accounts the stack Workloads may not know yet."""
    if not isinstance(environment.delivery, GitopsDelivery):
        return []
    return [namespace(each) for each in experiments if not (out / environment.name / each.name).exists()]


def _done(path: Path, *, check: bool) -> str:
    if check:
        return "stale"
    return "wrote" if path.exists() else "removed"
