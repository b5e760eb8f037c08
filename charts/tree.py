"""Files for GitOps: the charts' objects as a tree of YAML files with kustomizations.

Invariant: the same specs give the same bytes, and the tree below an environment's folder holds only these files, so
that a diff of the tree is a diff of the cluster's objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from charts import render_workloads
from charts.chart import Object, write_yaml
from charts.gitops import FOLDER, render_gitops
from charts.people import FOLDER as PEOPLE_FOLDER
from charts.people import render_people
from charts.runner import FOLDER as RUNNER_FOLDER
from charts.runner import render_runner
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.faults import SpecError, SpecFault

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
        SpecError: the folder holds files, but no kustomization: it is somebody else's, and nothing is removed.
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
    """Return the files below `out`, relative to it, that `write_tree` would write or remove; write nothing."""
    paths = (path for path in (out / name).rglob("*") if path.is_file() or path.is_symlink())
    present_paths = {path.relative_to(out) for path in paths}
    different_paths = {
        path for path, text in files.items() if path not in present_paths or (out / path).read_bytes() != text.encode()
    }
    return sorted(different_paths | (present_paths - set(files)))


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


def _render_folder(folder: Path, name: str, objects: Sequence[Object]) -> dict[Path, str]:
    return {
        folder / KUSTOMIZATION: _render_kustomization([f"{name}.yaml"]),
        folder / f"{name}.yaml": write_yaml(objects),
    }


def _render_kustomization(resources: Iterable[str]) -> str:
    head = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    return write_yaml([{**head, "resources": list(resources)}])


def _refuse_foreign_folder(folder: Path) -> None:
    if not folder.exists() or (folder / KUSTOMIZATION).is_file() or (folder.is_dir() and not any(folder.iterdir())):
        return
    got, allowed = "files of others, which rendering would replace", "an empty folder, or one that was rendered before"
    raise SpecError([SpecFault(str(folder), "", got, allowed, "name another folder by --out")])
