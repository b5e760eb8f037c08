"""`tandem render`: write the manifests that GitOps syncs, or say which are stale."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tandem.cli.console import format_count, print_json
from tandem.cli.inputs import read_legal_inputs
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
        names: environments; all when none is named
        strict: refuse what is only warned of
        out: folder to write below
        check: write nothing; exit 1 when a file is stale

    Raises:
        InputError: this is an installed package, without charts.
        SpecError: a spec is refused, or with `strict` warned of.
    """
    require_checkout("`tandem render`")
    inputs = read_legal_inputs(selection.narrow(names, strict=strict))
    import _node  # noqa: F401, PLC0415  # points jsii at the packaged Node before cdk8s starts it
    from charts import runner, tree  # noqa: PLC0415  # starts Node: only a command that renders pays for it

    # what a GitOps tool would make, and whose accounts the stack Workloads may not know yet
    unbound_namespaces = {
        environment.name: [
            namespace
            for folder, namespace in {
                **{
                    hosted.name: experiment_namespace(hosted)
                    for hosted in inputs.list_experiments(environment)
                },
                runner.FOLDER: RUNNER_NAMESPACE,
            }.items()
            if not (out / environment.name / folder).exists()
        ]
        for environment in inputs.environments()
        if isinstance(environment.delivery, GitopsDelivery)
    }
    change_tree = tree.list_stale_files if check else tree.write_tree
    changed_paths: list[str] = []
    for environment in inputs.environments():
        wanted_texts = tree.render_files(
            environment, inputs.list_experiments(environment), inputs.catalogue
        )
        changed_paths += [str(path) for path in change_tree(environment.name, wanted_texts, out)]
    orphans = [] if names else tree.list_orphan_folders(inputs.workspace.environments, out)
    code = ExitCode.STALE if check and (changed_paths or orphans) else ExitCode.DONE
    if selection.as_json:
        document = {
            "out": str(out),
            "stale" if check else "written": changed_paths,
            "orphans": orphans,
        }
        deploy_first = [
            f"{name}/Workloads" for name, namespaces in unbound_namespaces.items() if namespaces
        ]
        print_json(document | {"deploy_first": deploy_first, "exit_code": int(code)})
        return code
    if inputs.faults:
        print(
            f"{format_count(len(inputs.faults), 'warning')}: `tandem check` lists them",
            file=sys.stderr,
        )
    for path in changed_paths:
        print(f"{'stale' if check else 'wrote' if (out / path).exists() else 'removed'} {path}")
    for name in orphans:
        print(
            f"orphan {name}: no environment has this name; GitOps would go on syncing it: delete"
            f" {out / name}"
        )
    for name, namespaces in unbound_namespaces.items():
        if namespaces:
            print(
                "deploy Workloads before this is synced:"
                f" {build_cdk_command('deploy', name, 'Workloads')}"
            )
            print(
                f"  until then pods of {', '.join(namespaces)} start without credentials,"
                " and keep none"
            )
    environments = len(inputs.environments())
    files = format_count(len(changed_paths), "file")
    print(
        f"{format_count(environments, 'environment')}: {files} {'stale' if check else 'changed'} in"
        f" {out}"
    )
    return code
