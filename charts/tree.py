"""Files for GitOps: the charts' objects as a tree of YAML files with kustomizations.

Invariant: the same specs give the same bytes, and the tree below an environment's folder holds only
these files. So a diff of the tree is a diff of the cluster's objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import cdk8s

from charts import build_charts
from charts.chart import write_yaml
from charts.gitops import FOLDER, build_gitops_charts
from charts.people import FOLDER as PEOPLE_FOLDER
from charts.people import build_people_charts
from charts.runner import FOLDER as RUNNER_FOLDER
from charts.runner import build_runner_charts
from tandem.declarations.catalogue import Catalogue
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment
from tandem.declarations.faults import SpecError, SpecFault

KUSTOMIZATION = "kustomization.yaml"


def write_tree(name: str, files: Mapping[Path, str], out: Path) -> list[Path]:
    """Write an environment's files below `out` and remove those that no longer belong to it.

    Args:
        name: of the environment.
        files: as `render_files` returns them.
        out: folder of all trees.

    Returns:
        The files written or removed, relative to `out`; unchanged ones are left out.

    Raises:
        SpecError: the folder holds files, but no kustomization: it is somebody else's, and nothing
            is removed.
    """
    _refuse_foreign_folder(out / name)
    changed_paths = list_stale_files(name, files, out)
    for path in changed_paths:
        target = out / path
        if path in files:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(files[path].encode())
        else:
            target.unlink()
    for folder in sorted((out / name).rglob("*"), reverse=True):
        if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
            folder.rmdir()
    return changed_paths


def list_stale_files(name: str, files: Mapping[Path, str], out: Path) -> list[Path]:
    """Return files, relative to `out`, that `write_tree` would write or remove; write nothing."""
    paths = (path for path in (out / name).rglob("*") if path.is_file() or path.is_symlink())
    present_paths = {path.relative_to(out) for path in paths}
    different_paths = {
        path
        for path, text in files.items()
        if path not in present_paths or (out / path).read_bytes() != text.encode()
    }
    return sorted(different_paths | (present_paths - set(files)))


def list_orphan_folders(environments: Iterable[str], out: Path) -> list[str]:
    """Return the folders below `out` that are our trees of undeclared environments."""
    trees = {path.parent.name for path in out.glob(f"*/{KUSTOMIZATION}")}
    return sorted(trees - set(environments))


def render_files(
    environment: Environment, experiments: Iterable[Experiment], catalogue: Catalogue
) -> dict[Path, str]:
    """Return path, relative to the tree's root, to text, for one environment."""
    experiment_list = list(experiments)
    root = Path(environment.name)
    tree = {
        root / KUSTOMIZATION: _render_kustomization(
            [*(experiment.name for experiment in experiment_list), PEOPLE_FOLDER, RUNNER_FOLDER]
        )
    }

    for experiment in experiment_list:
        charts = build_charts(environment, experiment, catalogue)
        tree[root / experiment.name / KUSTOMIZATION] = _render_kustomization(charts)
        for stage, chart in charts.items():
            tree |= _render_folder(root / experiment.name / stage, stage, [chart])

    people_charts = build_people_charts()
    tree |= _render_folder(root / PEOPLE_FOLDER, PEOPLE_FOLDER, people_charts.values())
    runner_charts = build_runner_charts(environment, experiment_list)
    tree |= _render_folder(root / RUNNER_FOLDER, RUNNER_FOLDER, runner_charts.values())

    for tool, chart in build_gitops_charts(environment, experiment_list, catalogue).items():
        tree |= _render_folder(root / FOLDER, tool, [chart])
    return tree


def _render_folder(folder: Path, name: str, charts: Iterable[cdk8s.Chart]) -> dict[Path, str]:
    """Return a folder of one file, which holds the objects of some charts in their order."""
    objects = []
    for chart in charts:
        objects += chart.to_json()
    return {
        folder / KUSTOMIZATION: _render_kustomization([f"{name}.yaml"]),
        folder / f"{name}.yaml": write_yaml(objects),
    }


def _render_kustomization(resources: Iterable[str]) -> str:
    head = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    return write_yaml([{**head, "resources": list(resources)}])


def _refuse_foreign_folder(folder: Path) -> None:
    if (
        not folder.exists()
        or (folder / KUSTOMIZATION).is_file()
        or (folder.is_dir() and not any(folder.iterdir()))
    ):
        return
    got = "files of others, which rendering would replace"
    allowed = "an empty folder, or one that was rendered before"
    raise SpecError([SpecFault(str(folder), "", got, allowed, "name another folder by --out")])
