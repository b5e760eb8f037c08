"""The changes of an upgrade, before anybody deploys it: the tables of docs/upgrade.md.

    python benchmarks/upgrade_diff.py [--write]

The program renders and synthesizes two upgrades before and after, and compares them object by
object and property by property: the native runtime from the previous SDK to today's, and Kubernetes
from 1.35 to 1.36. It deploys nothing and uses no network. The values of the previous SDK are of
aws-neuron/deep-learning-containers vllm/inference/0.24.0.1.1.0/Dockerfile.neuronx, 2026-08-17.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from between_marks import ROOT, write_between

from tandem.cli.inputs import read_legal_inputs
from tandem.cli.selection import Selection
from tandem.declarations.artifact_key import compare_key_fields
from tandem.declarations.catalogue import Catalogue
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment
from tandem.declarations.variant_key import compute_artifact_key

DOCUMENT = ROOT / "docs" / "upgrade.md"
OLD_TAG = "0.24.0.1.1.0-neuronx-py313-sdk2.32.0-ubuntu24.04"
OLD_VERSIONS = {"sdk": "2.32.0", "vllm": "0.24.0", "neuronx_cc": "2.27.5334.0", "plugin": "1.1.0"}
# any id: without one there is no Fleet stack, whose node image an upgrade changes
RESERVATION = "cr-0123456789abcdef0"
DIGEST = re.compile(r"\b[0-9a-f]{12}(?:[0-9a-f]{4})?\b")  # twelve digits of a key, sixteen of specs


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryState:
    """One environment with its experiments and the data files, at one time."""

    environment: Environment
    experiments: list[Experiment]
    catalogue: Catalogue


def main() -> int:
    """Print the tables, or put them into the document."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--write", action="store_true", help=f"put the tables into {DOCUMENT.relative_to(ROOT)}"
    )
    options = parser.parse_args()
    for name, read_states in UPGRADES.items():
        text = "\n".join(describe_upgrade(*read_states()))
        if options.write:
            write_between(name, text, DOCUMENT)
        else:
            sys.stdout.write(f"{text}\n\n")
    return 0


def sdk_upgrade() -> tuple[RepositoryState, RepositoryState]:
    """Return native-us-east-2 with the previous SDK image, and with today's."""
    after = read_state("native-us-east-2")
    native = after.catalogue.runtimes["native"]
    versions = native.versions.model_copy(
        update={
            name: getattr(native.versions, name).model_copy(update={"value": value})
            for name, value in OLD_VERSIONS.items()
        }
    )
    image = native.image.model_copy(update={"tag": OLD_TAG})
    old = native.model_copy(update={"image": image, "versions": versions})
    catalogue = replace(after.catalogue, runtimes={**after.catalogue.runtimes, "native": old})
    return replace(after, catalogue=catalogue), after


def kubernetes_upgrade() -> tuple[RepositoryState, RepositoryState]:
    """Return post-us-east-2 on Kubernetes 1.35, and on 1.36."""
    after = read_state("post-us-east-2")
    capacity = after.environment.capacity.model_copy(update={"reservation_id": RESERVATION})
    new = after.environment.model_copy(update={"capacity": capacity})
    changes = {"kubernetes": "1.35", "ami_release": "1.35.6-20260625"}
    old = new.model_copy(update={"cluster": new.cluster.model_copy(update=changes)})
    return replace(after, environment=old), replace(after, environment=new)


def read_state(name: str) -> RepositoryState:
    """Read a committed environment and its experiments."""
    inputs = read_legal_inputs(
        Selection(
            environments=ROOT / "environments", experiments=ROOT / "experiments", names=(name,)
        )
    )
    (environment,) = inputs.environments()
    return RepositoryState(
        environment=environment,
        experiments=inputs.list_experiments(environment),
        catalogue=inputs.catalogue,
    )


def describe_upgrade(before: RepositoryState, after: RepositoryState) -> Iterator[str]:
    """Yield one upgrade's Markdown: new compilations, cluster objects, account resources."""
    yield from describe_keys(before, after)
    yield ""
    yield "| in the cluster | changed | new | gone | what changes |"
    yield "|---|---|---|---|---|"
    yield from describe_objects(read_objects(before), read_objects(after), "manifests")
    yield ""
    yield "| in the account | changed | new | gone | what changes |"
    yield "|---|---|---|---|---|"
    yield from describe_objects(read_resources(before), read_resources(after), "templates")


def describe_keys(before: RepositoryState, after: RepositoryState) -> Iterator[str]:
    """Yield which artifacts are compiled again, and for which fields of their keys."""
    pairs = []
    for experiment in after.experiments:
        for variant in experiment.all_variants():
            catalogues = (before.catalogue, after.catalogue)
            pairs.append(
                [compute_artifact_key(experiment, variant, catalogue) for catalogue in catalogues]
            )
    changed = [
        compare_key_fields(old.as_fields(), new.as_fields()) for old, new in pairs if old != new
    ]
    fields = sorted(set(itertools.chain.from_iterable(changed)))
    because = f", because of {', '.join(f'`{field}`' for field in fields)}" if fields else ""
    yield f"Compiled again: {len(changed)} of {len(pairs)} artifacts{because}."


def read_objects(state: RepositoryState) -> dict[tuple[str, str], Any]:
    """Return all rendered objects by kind and name."""
    import _node  # noqa: F401, PLC0415  # points jsii at the packaged Node before cdk8s starts it
    from charts import tree  # noqa: PLC0415  # starts Node

    files = tree.render_files(state.environment, state.experiments, state.catalogue)
    texts = (yaml.load_all(text, Loader=yaml.CSafeLoader) for text in files.values())
    bodies = itertools.chain.from_iterable(texts)
    return {
        (body["kind"], f"{body['metadata'].get('namespace', '')}/{body['metadata']['name']}"): body
        for body in bodies
        if "metadata" in body
    }


def read_resources(state: RepositoryState) -> dict[tuple[str, str], Any]:
    """Return the resources of every template by type and logical id."""
    import app  # noqa: PLC0415  # starts Node

    with tempfile.TemporaryDirectory() as folder:
        app.build_app(
            [(state.environment, state.experiments)], state.catalogue, outdir=folder, validate=False
        ).synth()
        templates = [json.loads(path.read_text()) for path in Path(folder).rglob("*.template.json")]
    resources = {}
    for index, template in enumerate(
        sorted(templates, key=lambda template: template["Description"])
    ):
        for name, resource in template["Resources"].items():
            resources[resource["Type"], f"{index}/{name}"] = resource
    return resources


def describe_objects(
    before: Mapping[tuple[str, str], Any], after: Mapping[tuple[str, str], Any], where: str
) -> Iterator[str]:
    """Yield a row for each kind of object that differs; if none differs, a row that says so."""
    changed: dict[str, Counter[str]] = {}
    counts: dict[str, Counter[str]] = {}
    for key in [*before, *(key for key in after if key not in before)]:
        kind = key[0]
        old = before.get(key)
        new = after.get(key)
        if old == new:
            continue
        verdict = "changed"
        if old is None or new is None:
            verdict = "new" if old is None else "gone"
        counts.setdefault(kind, Counter())[verdict] += 1
        if verdict == "changed":
            changed.setdefault(kind, Counter()).update(dict.fromkeys(list_changes(old, new), 1))
    for kind, count in sorted(counts.items()):
        lines = [
            f"{text} ({number})" if number > 1 else text
            for text, number in changed.get(kind, Counter()).items()
        ]
        yield (
            f"| {kind} | {count['changed']} | {count['new']} | {count['gone']} |"
            f" {'; '.join(lines)} |"
        )
    if not counts:
        yield f"| nothing: the {where} are the same | 0 | 0 | 0 | |"


def list_changes(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Yield each differing leaf: last two keys, old and new value; parse JSON or YAML in it.

    A key that one side lacks appears without its value, which may be a whole file.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            if key in old and key in new:
                yield from list_changes(old[key], new[key], f"{path}/{key}")
            else:
                yield f"`{name_leaf(f'{path}/{key}')}`: {'new' if key in new else 'gone'}"
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for mine, theirs in zip(old, new, strict=True):
            yield from list_changes(mine, theirs, path)
    elif old != new:
        texts = [value if isinstance(value, str) else json.dumps(value) for value in (old, new)]
        if all(text.startswith(("[{", "{")) for text in texts):
            yield from list_changes(json.loads(texts[0]), json.loads(texts[1]), path)
        # YAML that the runner reads
        elif all(text.startswith('"') and ":" in text for text in texts):
            yield from list_changes(yaml.safe_load(texts[0]), yaml.safe_load(texts[1]), path)
        else:
            yield f"`{name_leaf(path)}`: {describe_change(*texts)}"


def name_leaf(path: str) -> str:
    """Return the last two keys of a path."""
    return ".".join(path.split("/")[-2:])


def describe_change(old: str, new: str) -> str:
    """Return a text's differences by word; for names with a digest, only that it changed."""
    if DIGEST.sub("", old) == DIGEST.sub("", new):
        return "another digest"
    words = [re.split(r"(?<=[/:@ ])", text) for text in (old, new)]
    begin = next(at for at, pair in enumerate(zip(*words, strict=False)) if pair[0] != pair[1])
    return " to ".join(f"`{''.join(text[begin:])}`" for text in words)


UPGRADES = {"sdk": sdk_upgrade, "kubernetes": kubernetes_upgrade}


if __name__ == "__main__":
    sys.exit(main())
