"""`tandem render`: write the manifests that GitOps syncs, or say which are stale."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from tandem.cli.inputs import read_legal_inputs
from tandem.cli.outcome import compute_exit_code, format_count, print_json
from tandem.cli.selection import Selection, add_name_flags
from tandem.errors import ExitCode
from tandem.shell_command import build_cdk_command
from tandem.spec.environment import Environment, GitopsDelivery
from tandem.spec.experiment import Experiment
from tandem.spec.names import experiment_namespace


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    add_name_flags(parser)
    parser.add_argument("--out", type=Path, default=Path("manifests"), metavar="DIR", help="folder to write below")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is stale")


def render(selection: Selection, out: Path, *, check: bool) -> ExitCode:
    """Render the named environments (all when none is) below `out`; with `check` compare and write nothing.

    Raises:
        SpecError: a spec is refused, or with `strict` warned of.
    """
    inputs = read_legal_inputs(selection)
    import _node  # noqa: F401, PLC0415  # points jsii at the packaged Node before cdk8s starts it
    from charts import tree  # noqa: PLC0415  # starts Node: only a command that renders pays for it

    unbound_namespaces = {
        environment_spec.name: _list_unbound_namespaces(
            environment_spec, inputs.list_experiments(environment_spec), out
        )
        for environment_spec in inputs.environments()
    }
    changed_paths: list[str] = []
    for environment in inputs.environments():
        render_tree = tree.list_stale_files if check else tree.write_tree
        changed_paths += [
            str(path) for path in render_tree(environment, inputs.list_experiments(environment), inputs.catalogue, out)
        ]
    orphans = [] if selection.names else tree.list_orphan_folders(inputs.workspace.environments, out)
    code = (
        ExitCode.STALE
        if check and (changed_paths or orphans)
        else compute_exit_code(inputs.faults, strict=selection.strict)
    )
    if selection.as_json:
        print_json(
            {
                "out": str(out),
                "stale" if check else "written": changed_paths,
                "orphans": orphans,
                "deploy_first": [f"{name}/Workloads" for name, namespaces in unbound_namespaces.items() if namespaces],
                "exit_code": int(code),
            }
        )
        return code
    if inputs.faults:
        print(f"{format_count(len(inputs.faults), 'warning')}: `tandem check` lists them", file=sys.stderr)
    for path in changed_paths:
        print(f"{_describe_file(out / path, check=check)} {path}")
    for name in orphans:
        print(f"orphan {name}: no environment has this name; GitOps would go on syncing it: delete {out / name}")
    for name, namespaces in unbound_namespaces.items():
        if namespaces:
            print(f"deploy Workloads before this is synced: {build_cdk_command('deploy', name, 'Workloads')}")
            print(f"  until then pods of {', '.join(namespaces)} start without credentials, and keep none")
    verb = "stale" if check else "changed"
    print(
        f"{format_count(len(inputs.environments()), 'environment')}: {format_count(len(changed_paths), 'file')} "
        f"{verb} in {out}"
    )
    return code


def _list_unbound_namespaces(environment: Environment, experiments: Iterable[Experiment], out: Path) -> list[str]:
    """Return the namespaces that a GitOps tool would make, and whose accounts the stack Workloads may not know yet."""
    if not isinstance(environment.delivery, GitopsDelivery):
        return []
    return [
        experiment_namespace(experiment)
        for experiment in experiments
        if not (out / environment.name / experiment.name).exists()
    ]


def _describe_file(path: Path, *, check: bool) -> str:
    if check:
        return "stale"
    return "wrote" if path.exists() else "removed"
