"""Bad input made from the schemas: each leaf of a wrong type, missing, and with an unknown
sibling."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from complete import ENVIRONMENT, EXPERIMENT, OTHER_ENVIRONMENT, removed, replaced, value
from write_pages import SchemaKey, walk_schema_keys

from tandem.declarations.document import read_document
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment
from tandem.declarations.faults import SpecError, SpecFault
from tandem.declarations.record import SpecRecord, describe_allowed_values, parse_record

WHOLE: dict[str, tuple[type[SpecRecord], dict[str, Any]]] = {
    "environment": (Environment, ENVIRONMENT),
    "other-environment": (Environment, OTHER_ENVIRONMENT),
    "experiment": (Experiment, EXPERIMENT),
}
WRONG: dict[str, Any] = {
    "a mapping": {"wrong": "type"},
    "a list": [["wrong"]],
    "a word": "no such word!",
    "a number": 0.5,
    "one as a fraction": 1.0,
    "a boolean": True,
    "null": None,
}


def written(kind: str) -> Iterator[tuple[str, SchemaKey]]:
    """Yield (key path, leaf) of every leaf that the whole file of a kind holds."""
    record, data = WHOLE[kind]
    for leaf in walk_schema_keys(record):
        path = leaf.path.replace("[]", "[0]")
        if leaf.path == "name":
            continue
        section, _, only = leaf.only_kind.partition(".kind: ")
        if not only or value(data, f"{section}.kind") == only:
            yield path, leaf


def takes(annotation: Any) -> set[object]:
    """Return the plain types that an annotation admits; Literal for words to choose from."""
    if get_origin(annotation) is Literal:
        return {Literal}
    if get_origin(annotation) in (tuple, dict):
        return {get_origin(annotation)}
    if get_args(annotation):
        return set().union(
            *(takes(argument) for argument in get_args(annotation) if not isinstance(argument, str))
        )
    return {annotation} if isinstance(annotation, type) else set()


def wrong(leaf: SchemaKey) -> Iterator[str]:
    """Yield the names of the values in WRONG that a leaf must refuse."""
    types_ = takes(leaf.field.annotation)
    free_text = describe_allowed_values(leaf.field).startswith(("text", "a relative folder"))
    yield from (["a mapping"] if dict not in types_ else ["a word"])
    yield "a list"
    if not free_text:
        yield "a word"
    if float not in types_:
        yield from ("a number", "one as a fraction")
    if bool not in types_:
        yield "a boolean"
    if types.NoneType not in types_:
        yield "null"


def list_faults(folder: Path, kind: str, data: Any) -> tuple[SpecFault, ...]:
    """Write a file (JSON is YAML, and quicker written), read it back and return what is wrong with
    it."""
    path = folder / "file.yaml"
    path.write_text(json.dumps(data, indent=1))
    try:
        parse_record(WHOLE[kind][0], read_document(path), name="file")
    except SpecError as error:
        return error.faults
    return ()


def stripped(path: str, *, paths: set[str]) -> str:
    """Return the leaf that a fault's path lies in: the path itself, or the list around it."""
    return path if path in paths else path.removesuffix("[0]")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for all files, each overwritten by the next: making thousands takes longer than
    the tests."""
    return tmp_path_factory.mktemp("leaves")


LEAVES = [(kind, path, leaf) for kind in WHOLE for path, leaf in written(kind)]


def chooses(leaf: SchemaKey) -> bool:
    """Whether a leaf says which others its section has: a wrong one hides their faults."""
    return bool(leaf.only_kind) and leaf.path.endswith(".kind")


def together(kind: str, name: str) -> list[str]:
    """Return the leaves of a kind that must refuse a wrong value and can be spoilt in one file."""
    return [
        path
        for whose, path, leaf in LEAVES
        if whose == kind and not chooses(leaf) and name in wrong(leaf)
    ]


CHOICES = [
    (kind, path, name)
    for kind, path, leaf in LEAVES
    if chooses(leaf)
    for name in dict.fromkeys(wrong(leaf))
]


@pytest.mark.parametrize("kind", WHOLE)
def test_the_whole_file_is_good(kind, folder):
    assert list_faults(folder, kind, WHOLE[kind][1]) == ()


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in WHOLE for name in WRONG if together(kind, name)]
)
def test_rejects_a_wrong_type_at_each_key_of_a_file(kind, name, folder):
    paths = together(kind, name)
    data = WHOLE[kind][1]
    for path in paths:
        data = replaced(data, path, WRONG[name])

    faults = list_faults(folder, kind, data)

    assert sorted(stripped(fault.path, paths=set(paths)) for fault in faults) == sorted(paths)
    assert [
        fault for fault in faults if not all((fault.got, fault.allowed, fault.change, fault.line))
    ] == []


@pytest.mark.parametrize(
    ("kind", "path", "name"), CHOICES, ids=[" ".join(parts) for parts in CHOICES]
)
def test_rejects_a_wrong_type_of_what_chooses_the_other_keys(kind, path, name, folder):
    faults = list_faults(folder, kind, replaced(WHOLE[kind][1], path, WRONG[name]))
    assert [stripped(fault.path, paths={path}) for fault in faults] == [path], name
    assert all((faults[0].got, faults[0].allowed, faults[0].change, faults[0].line))


@pytest.mark.parametrize(
    ("kind", "path"),
    [(kind, path) for kind, path, leaf in LEAVES if leaf.field.is_required()],
    ids=lambda part: part,
)
def test_rejects_a_missing_leaf_at_its_key(kind, path, folder):
    faults = list_faults(folder, kind, removed(WHOLE[kind][1], path))
    assert [(fault.path, fault.got) for fault in faults] == [(path, "")]
    assert faults[0].allowed
    assert faults[0].change.startswith("add this key")


@pytest.mark.parametrize("kind", WHOLE)
def test_every_leaf_with_a_default_may_be_left_out(kind, folder):
    optional = [
        path for whose, path, leaf in LEAVES if whose == kind and not leaf.field.is_required()
    ]
    assert [
        path for path in optional if list_faults(folder, kind, removed(WHOLE[kind][1], path))
    ] == []


@pytest.mark.parametrize("kind", WHOLE)
def test_rejects_unknown_siblings_and_names_the_nearest_key(kind, folder):
    paths = [path for whose, path, _ in LEAVES if whose == kind]
    data = WHOLE[kind][1]
    for path in paths:
        data = replaced(data, f"{path}_", 1)

    faults = {fault.path: fault for fault in list_faults(folder, kind, data)}

    assert sorted(faults) == sorted(f"{path}_" for path in paths)
    for path in paths:
        name = path.rpartition(".")[2]
        assert faults[f"{path}_"].change == f"did you mean {name!r}?"
        assert name in faults[f"{path}_"].allowed


@pytest.mark.parametrize("name", ["a list", "null"])
@pytest.mark.parametrize("section", ["network", "cluster.endpoint"])
def test_rejects_a_section_that_is_no_mapping(section, name, folder):
    faults = list_faults(folder, "environment", replaced(ENVIRONMENT, section, WRONG[name]))
    assert [fault.path for fault in faults] == [section]
    assert faults[0].allowed.startswith("a mapping")


@pytest.mark.parametrize(
    ("kind", "path", "new", "words"),
    [
        ("experiment", "serving.tensor_parallel_size", 129, "a whole number, from 1 to 128"),
        ("experiment", "sweep.drafts", [], None),
        ("experiment", "sweep.num_speculative_tokens[0]", 65, "a whole number from 1 to 64"),
        ("experiment", "suites[0]", "reel", None),
        ("experiment", "suites[0].file", "../support.jsonl", None),
        ("experiment", "suites[0].file", "prompts/real", None),
        ("experiment", "suites[0].classes.billing", 0, None),
        ("environment", "network.kind", "neww", "new, existing"),
        ("environment", "network.zones", ["use2-az1"], None),
        ("environment", "account", "2109876543210", "12 digits in quotes"),
        ("environment", "capacity.usd_per_hour_date", "2026-02-30", "a date YYYY-MM-DD"),
        ("environment", "experiments[0]", "Upper", None),
    ],
)
def test_rejects_a_value_outside_its_limits(kind, path, new, words, folder):
    faults = list_faults(folder, kind, replaced(WHOLE[kind][1], path, new))
    assert [fault.path for fault in faults] == [path]
    assert words in (None, faults[0].allowed)


def test_rejects_the_pool_as_a_class(folder):
    data = replaced(EXPERIMENT, "suites[0].classes", {"all": 60})
    assert [fault.path for fault in list_faults(folder, "experiment", data)] == [
        "suites[0].classes.all"
    ]


@pytest.mark.parametrize("kind", ["environment", "experiment"])
def test_rejects_a_name_written_in_the_file(kind, folder):
    faults = list_faults(folder, kind, {**WHOLE[kind][1], "name": "other"})
    assert [fault.path for fault in faults] == ["name"]


@pytest.mark.parametrize("key", ["public.ecr.aws/UPPER", ""])
def test_rejects_a_mirror_of_what_is_no_registry(key, folder):
    faults = list_faults(
        folder, "environment", {**ENVIRONMENT, "registry_mirrors": {key: "mirror.acme.dev"}}
    )
    assert len(faults) == 1
    assert faults[0].path.startswith("registry_mirrors")
    assert faults[0].line


def test_a_section_without_its_kind_is_told_the_kinds(folder):
    faults = list_faults(folder, "environment", removed(ENVIRONMENT, "network.kind"))
    assert faults[0].allowed == "new, existing"


@pytest.mark.parametrize(
    ("path", "new", "advice"),
    [
        ("account", 210987654321, "put it in quotes"),
        ("capacity.nodes", "1", "write a decimal number, without quotes"),
        ("capacity.kind", "one", "write an allowed value"),
        (
            "cluster.access.admin[0]",
            "arn:aws:sts::210987654321:assumed-role/Admin/maria",
            (
                "write the role of this session: arn:aws:iam::210987654321:role/Admin, with its"
                " path if it has one"
            ),
        ),
    ],
)
def test_advice_follows_what_makes_a_value_wrong(path, new, advice, folder):
    faults = list_faults(folder, "environment", replaced(ENVIRONMENT, path, new))
    assert faults[0].change.startswith(advice)
