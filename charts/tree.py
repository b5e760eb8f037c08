"""Files for GitOps: the charts' objects as a tree of YAML files with kustomizations.

Invariant: the same specs give the same bytes, and the tree below an environment's folder holds only these files, so
that a diff of the tree is a diff of the cluster's objects.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import cdk8s
import yaml

from charts import render_workloads
from charts.gitops import FOLDER, render_gitops
from charts.manifest import Object
from charts.people import FOLDER as PEOPLE_FOLDER
from charts.people import render_people
from charts.runner import FOLDER as RUNNER_FOLDER
from charts.runner import render_runner
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.faults import SpecError, SpecFault

KUSTOMIZATION = "kustomization.yaml"
FIRST_KEYS = ("apiVersion", "kind", "metadata", "spec")
WIDTH = 1_000_000  # characters: no line is ever folded, so that a diff shows only changed values


def write_tree(
    environment: Environment, experiments: Iterable[Experiment], catalogue: Catalogue, out: Path
) -> list[Path]:
    """Write the environment's tree below `out` and remove files that no longer belong to it.

    Returns:
        The files written or removed, relative to `out`; unchanged ones are left out.

    Raises:
        SpecError: the folder holds files, but no kustomization: it is somebody else's, and nothing is removed.
    """
    wanted_texts = render_files(environment, experiments, catalogue)
    _refuse_foreign_folder(out / environment.name)
    changed_paths = _list_differences(environment, wanted_texts, out)
    for path in changed_paths:
        target = out / path
        if path in wanted_texts:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(wanted_texts[path].encode())
        else:
            target.unlink()
    for folder in sorted((out / environment.name).rglob("*"), reverse=True):
        if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
            folder.rmdir()
    return changed_paths


def list_stale_files(
    environment: Environment, experiments: Iterable[Experiment], catalogue: Catalogue, out: Path
) -> list[Path]:
    """Return the files below `out`, relative to it, that `write_tree` would write or remove; write nothing."""
    return _list_differences(environment, render_files(environment, experiments, catalogue), out)


def list_orphan_folders(environments: Iterable[str], out: Path) -> list[str]:
    """Return the folders below `out` that are our trees of environments that are no longer declared."""
    trees = {path.parent.name for path in out.glob(f"*/{KUSTOMIZATION}")}
    return sorted(trees - set(environments))


def render_files(environment: Environment, experiments: Iterable[Experiment], catalogue: Catalogue) -> dict[Path, str]:
    """Return path, relative to the tree's root, to text, for one environment."""
    experiment_list = list(experiments)
    root = Path(environment.name)
    charts = {experiment.name: render_workloads(environment, experiment, catalogue) for experiment in experiment_list}
    tree = {root / KUSTOMIZATION: _render_kustomization([*charts, PEOPLE_FOLDER, RUNNER_FOLDER])}
    for name, stages in charts.items():
        tree[root / name / KUSTOMIZATION] = _render_kustomization(stages)
        for stage, objects in stages.items():
            tree |= _render_folder(root / name / stage, stage, objects)
    parts_by_folder = {
        PEOPLE_FOLDER: render_people(),
        RUNNER_FOLDER: render_runner(environment, experiment_list),
    }
    for folder, parts in parts_by_folder.items():
        tree |= _render_folder(root / folder, folder, [body for bodies in parts.values() for body in bodies])
    for tool, objects in render_gitops(environment, experiment_list, catalogue).items():
        tree |= _render_folder(root / FOLDER, tool, objects)
    return tree


def _render_folder(folder: Path, name: str, objects: list[Object]) -> dict[Path, str]:
    text = render_chart(name, json.dumps(objects))
    return {folder / KUSTOMIZATION: _render_kustomization([f"{name}.yaml"]), folder / f"{name}.yaml": text}


@cache
def render_chart(name: str, objects_json: str) -> str:
    """Return objects as YAML, as cdk8s renders them: each once by kind and name, in their order.

    Environments with the same experiments have many equal charts, and share the rendered text.
    """
    chart = cdk8s.Chart(cdk8s.App(), name, disable_resource_name_hashes=True)
    objects = json.loads(objects_json)
    for body in objects:
        metadata = body["metadata"]
        identity = f"{body['kind']}-{metadata.get('namespace', '')}-{metadata['name']}"
        cdk8s.ApiObject(
            chart, identity, api_version=body["apiVersion"], kind=body["kind"],
            metadata=cdk8s.ApiObjectMetadata(**metadata),
        )  # fmt: skip
    # ApiObject takes only the head from Python; the rest follows here, where it costs no message to Node
    bodies = [body | head for body, head in zip(objects, chart.to_json(), strict=True)]
    return "---\n".join(
        _dump_yaml({key: body[key] for key in (*FIRST_KEYS, *sorted(set(body) - set(FIRST_KEYS))) if key in body})
        for body in bodies
    )


def _render_kustomization(resources: Iterable[str]) -> str:
    head = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    return _dump_yaml({**head, "resources": list(resources)})


class _BlockDumper(yaml.CSafeDumper):
    """A dumper that writes several lines as a block, and no anchors; in C, because a tree is mostly YAML to write."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


def _represent_string(dumper: yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_BlockDumper.add_representer(str, _represent_string)


def _dump_yaml(body: Object) -> str:
    return yaml.dump(body, Dumper=_BlockDumper, sort_keys=False, width=WIDTH, allow_unicode=True)


def _list_differences(environment: Environment, wanted_texts: dict[Path, str], out: Path) -> list[Path]:
    files = (path for path in (out / environment.name).rglob("*") if path.is_file() or path.is_symlink())
    present_paths = {path.relative_to(out) for path in files}
    different_paths = {
        path
        for path, text in wanted_texts.items()
        if path not in present_paths or (out / path).read_bytes() != text.encode()
    }
    return sorted(different_paths | (present_paths - set(wanted_texts)))


def _refuse_foreign_folder(folder: Path) -> None:
    if not folder.exists() or (folder / KUSTOMIZATION).is_file() or (folder.is_dir() and not any(folder.iterdir())):
        return
    got, allowed = "files of others, which rendering would replace", "an empty folder, or one that was rendered before"
    raise SpecError([SpecFault(str(folder), "", got, allowed, "name another folder by --out")])
