"""`tandem render`: write the manifests that GitOps syncs, or say which are stale."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tandem.cli.console import format_count, print_json, print_line
from tandem.cli.inputs import CommandInputs, read_legal_inputs
from tandem.cli.selection import DEFAULTS, Selection
from tandem.declarations.checkout import require_checkout
from tandem.declarations.environment import GitopsDelivery
from tandem.declarations.names import experiment_namespace
from tandem.errors import ExitCode
from tandem.ops.people.cluster_rights import RUNNER_NAMESPACE
from tandem.shell_command import build_cdk_command


def render(
    *names: str,
    strict: bool = False,
    out: Annotated[Path, Parameter(metavar="DIR")] = Path("manifests"),
    check: bool = False,
    selection: Selection = DEFAULTS,
) -> ExitCode:
    """Write manifests/ from the specs.

    Args:
        names: environments (default: all)
        strict: treat warnings as errors
        out: folder to write to
        check: write nothing; exit 1 if a file is stale

    Raises:
        InputError: this is an installed package, without charts.
        SpecError: a spec is refused, or with `strict` warned of.
    """
    require_checkout("`tandem render`")
    inputs = read_legal_inputs(selection.narrow(names, strict=strict))
    import _node  # noqa: F401, PLC0415  # points jsii at the packaged Node before cdk8s starts it
    from charts import tree  # noqa: PLC0415  # starts Node: only a command that renders pays for it

    unbound_namespaces = _list_unbound_namespaces(inputs, out)
    change_tree = tree.list_stale_files if check else tree.write_tree
    paths = []
    for environment in inputs.environments():
        experiments = inputs.list_experiments(environment)
        texts = tree.render_files(environment, experiments, inputs.catalogue)
        paths += [str(path) for path in change_tree(environment.name, texts, out)]
    orphans = [] if names else tree.list_orphan_folders(inputs.workspace.environments, out)

    code = ExitCode.STALE if check and (paths or orphans) else ExitCode.DONE
    if selection.as_json:
        document = {
            "out": str(out),
            "stale" if check else "written": paths,
            "orphans": orphans,
            "deploy_first": [f"{name}/Workloads" for name in unbound_namespaces],
        }
        return print_json(document, code)

    if inputs.faults:
        warnings = format_count(len(inputs.faults), "warning")
        print_line(f"{warnings}: `tandem check` lists them", stderr=True)
    for path in paths:
        print_line(f"{_describe_change(out / path, check=check)} {path}")
    for name in orphans:
        delete = f"delete {out / name}"
        print_line(f"orphan {name}: no environment has this name, but GitOps syncs it: {delete}")
    for name, namespaces in unbound_namespaces.items():
        deploy = build_cdk_command("deploy", name, "Workloads")
        print_line(f"deploy Workloads before this is synced: {deploy}")
        print_line(
            f"  until then pods of {', '.join(namespaces)} start and stay without credentials"
        )
    environments = format_count(len(inputs.environments()), "environment")
    files = format_count(len(paths), "file")
    print_line(f"{environments}: {files} {'stale' if check else 'changed'} in {out}")
    return code


def _list_unbound_namespaces(inputs: CommandInputs, out: Path) -> dict[str, list[str]]:
    """Return the namespaces that a GitOps tool would make, by environment.

    The stack Workloads may not know their service accounts yet.
    """
    from charts import runner  # noqa: PLC0415  # as above

    unbound_namespaces = {}
    for environment in inputs.environments():
        experiments = inputs.list_experiments(environment)
        folders = {hosted.name: experiment_namespace(hosted) for hosted in experiments}
        folders[runner.FOLDER] = RUNNER_NAMESPACE
        tree = out / environment.name
        new = [name for folder, name in folders.items() if not (tree / folder).exists()]
        if new and isinstance(environment.delivery, GitopsDelivery):
            unbound_namespaces[environment.name] = new
    return unbound_namespaces


def _describe_change(path: Path, *, check: bool) -> str:
    if check:
        return "stale"
    return "wrote" if path.exists() else "removed"
