"""The door of GitOps: the charts' objects as a tree of YAML files with kustomizations.

Invariant: the same specs give the same bytes, and the tree below an environment's folder holds these files and
no other, so that a diff of the tree is a diff of what runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from charts.gitops import FOLDER, gitops
from charts.people import FOLDER as PEOPLE_FOLDER
from charts.people import render_people
from charts.workloads import workloads
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.faults import Fault, SpecError

KUSTOMIZATION = "kustomization.yaml"
FIRST = ("apiVersion", "kind", "metadata", "spec")
WIDTH = 1_000_000  # characters: no line is ever folded, so that a diff shows a changed value and nothing else

Object = dict[str, Any]


def render(environment: Environment, experiments: Iterable[Experiment], catalogue: Catalogue, out: Path) -> list[Path]:
    """Write the environment's tree below `out` and remove what no longer belongs to it.

    Returns:
        The files written or removed, relative to `out`; those that were right already are left alone.

    Raises:
        SpecError: the folder holds files, and no kustomization: it is somebody else's, and nothing is removed.
    """
    wanted = files(environment, experiments, catalogue)
    _refuse_foreign(out / environment.name)
    changed = _different(environment, wanted, out)
    for path in changed:
        target = out / path
        if path in wanted:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(wanted[path].encode())
        else:
            target.unlink()
    _remove_empty(out / environment.name)
    return changed


def stale(environment: Environment, experiments: Iterable[Experiment], catalogue: Catalogue, out: Path) -> list[Path]:
    """Return the files below `out`, relative to it, that `render` would write or remove; write nothing."""
    return _different(environment, files(environment, experiments, catalogue), out)


def orphans(environments: Iterable[str], out: Path) -> list[str]:
    """Return the folders below `out` that are trees of ours for environments that are declared no more."""
    trees = {path.parent.name for path in out.glob(f"*/{KUSTOMIZATION}")}
    return sorted(trees - set(environments))


def files(environment: Environment, experiments: Iterable[Experiment], catalogue: Catalogue) -> dict[Path, str]:
    """Return path, relative to the tree's root, to text, for one environment."""
    hosted = list(experiments)
    root = Path(environment.name)
    charts = {experiment.name: workloads(environment, experiment, catalogue) for experiment in hosted}
    tree = {root / KUSTOMIZATION: _kustomization([*charts, PEOPLE_FOLDER])}
    for name, stages in charts.items():
        tree[root / name / KUSTOMIZATION] = _kustomization(stages)
        for stage, objects in stages.items():
            tree |= _folder(root / name / stage, stage, objects)
    rights = render_people(environment, hosted, charts)
    tree |= _folder(root / PEOPLE_FOLDER, PEOPLE_FOLDER, [body for bodies in rights.values() for body in bodies])
    for tool, objects in gitops(environment, hosted, catalogue).items():
        tree |= _folder(root / FOLDER, tool, objects)
    return tree


def _folder(folder: Path, name: str, objects: list[Object]) -> dict[Path, str]:
    text = "---\n".join(_text(_ordered(body)) for body in objects)
    return {folder / KUSTOMIZATION: _kustomization([f"{name}.yaml"]), folder / f"{name}.yaml": text}


def _kustomization(resources: Iterable[str]) -> str:
    return _text({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(resources),
    })  # fmt: skip


def _ordered(body: Object) -> Object:
    head = {key: body[key] for key in FIRST if key in body}
    return head | {key: body[key] for key in sorted(body) if key not in head}


class _Dumper(yaml.CSafeDumper):
    """Several lines as a block, nothing as an anchor; in C, because a tree is mostly YAML to write."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


def _string(dumper: yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _string)


def _text(body: Object) -> str:
    return yaml.dump(body, Dumper=_Dumper, sort_keys=False, width=WIDTH, allow_unicode=True)


def _different(environment: Environment, wanted: dict[Path, str], out: Path) -> list[Path]:
    present = set(_present(out, environment.name))
    wrong = {path for path, text in wanted.items() if path not in present or (out / path).read_bytes() != text.encode()}
    return sorted(wrong | (present - set(wanted)))


def _refuse_foreign(folder: Path) -> None:
    if not folder.exists() or (folder / KUSTOMIZATION).is_file() or (folder.is_dir() and not any(folder.iterdir())):
        return
    what = "a folder of other files" if folder.is_dir() else "a file"
    raise SpecError([
        Fault(
            file=str(folder), path="", got=f"{what}, which rendering would replace",
            allowed="an empty folder, or one that was rendered before", change="name another folder by --out",
        )
    ])  # fmt: skip


def _present(out: Path, name: str) -> Iterator[Path]:
    return (path.relative_to(out) for path in (out / name).rglob("*") if path.is_file() or path.is_symlink())


def _remove_empty(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
            path.rmdir()
