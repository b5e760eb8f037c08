"""Every command that a page shows, whole or named, is one that its real program takes; none is
run."""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import botocore.session
import jmespath
import pytest
from botocore import xform_name
from botocore.model import ListShape, OperationModel, Shape, StructureShape
from cyclopts import CycloptsError, MissingArgumentError
from document_text import (
    CURRENT,
    ROOT,
    list_block_commands,
    list_committed,
    list_span_commands,
    list_spans,
    name_page,
)

from tandem.cli.program import app
from tandem.errors import TandemError

# What stands for a value of the reader: PLACE, $PLACE, <place>, `...`, a choice a|b.
PLACEHOLDER = re.compile(r".*(\b[A-Z][A-Z_]*\b|\$|<[\w ]+>|\.\.\.|\|).*")
# Commands that the AWS CLI has beside the operations of its models, with their flags (AWS CLI v2's
# reference).
AWS_CUSTOM = {
    ("ecr", "get-login-password"): set(),
    ("eks", "update-kubeconfig"): {"--name", "--alias"},
    ("s3", "cp"): set(),
    ("s3", "rm"): {"--recursive"},
    ("s3", "sync"): set(),
}
# Flags of every AWS command, and those that the AWS CLI adds to operations that have pages.
AWS_GLOBAL = {"--region", "--query", "--output", "--profile", "--max-items"}
MAP_KEYS = {"Policy"}  # of a topic's attributes: botocore's models leave the keys of a map open
# commands of kubectl with commands below them
KUBECTL_GROUPS = {("create",), ("create", "secret"), ("set",)}
OWN_SCRIPTS = {"first.py", "task.py"}  # that the reader saves from a block of the page
PAGE_COMMANDS = {"library.md": ("tandem", "bench", "run")}  # whose flags a page names without it
FOREIGN_FLAGS = {
    "--validate": "kubectl apply",
    "--build-arg": "docker build",
    "--speculative-config": "vllm serve",
    "--gen_kwargs": "lm-eval",
}
WHOLE = {words for path in CURRENT for words in list_block_commands(path) if "..." not in words}


def complete_command(span: str) -> tuple[str, ...]:
    """Return the whole of a command that a page names without its program: `runs show`, `cdk
    deploy`; empty if none."""
    words = tuple(span.split())
    if len(words) < 2 or not re.match(r"-|[a-z]", words[1]):
        return ()
    if words[0] == "cdk":
        return ("npx", *words)
    command = app.parse_commands(list(words))[0]
    return ("tandem", *words) if len(command) > 1 or (command and words[1].startswith("--")) else ()


COMMANDS = [
    (path, words)
    for path in CURRENT
    for words in (*list_block_commands(path), *list_span_commands(path))
]
COMMANDS += [
    (path, words) for path in CURRENT for words in map(complete_command, list_spans(path)) if words
]


def select_commands(*programs: str) -> list[object]:
    """Return each command of these programs, as parameters of a test, under the first page that has
    it."""
    first_pages = {
        words: name_page(path) for path, words in reversed(COMMANDS) if words[0] in programs
    }
    return [
        pytest.param(words[1:], id=f"{page}: {' '.join(words)}")
        for words, page in first_pages.items()
    ]


def list_flags(words: tuple[str, ...]) -> set[str]:
    """Return the flags among the words of a command, up to a lone `--`."""
    own_words = words[: words.index("--")] if "--" in words else words
    return {word.partition("=")[0] for word in own_words if re.match(r"--?[a-zA-Z]", word)}


# ---- tandem


@cache
def list_tandem_flags(command: tuple[str, ...]) -> frozenset[str]:
    """Return the flags of a command, or of all commands below it."""
    flags = {"--help", "--version"}
    if not command or command[-1] in flags:
        return frozenset(flags)
    leaf = app.parse_commands(list(command))[1][-1]
    if leaf.default_command is not None:
        arguments = leaf.assemble_argument_collection(default_parameter=app.default_parameter)
        flags |= {name for argument in arguments for name in argument.names}
    for name in leaf:
        if not name.startswith("-"):
            flags |= list_tandem_flags((*command, name))
    return frozenset(flags)


@pytest.mark.parametrize("words", select_commands("tandem"))
def test_tandem_takes_the_command(words):
    command, _, rest = app.parse_commands(list(words))
    assert command or rest[0].startswith("-"), "no such command"
    assert list_flags(words) <= list_tandem_flags(tuple(command))
    assert find_fault(words) is None


def find_fault(words: tuple[str, ...]) -> CycloptsError | None:
    """Return why the command line refuses the words; a command that is only named may lack what it
    needs."""
    try:
        app.parse_args([word.replace("URL", "http://HOST:8000") for word in words])
    except TandemError:
        return None  # --resume reads the run's folder
    except CycloptsError as fault:
        lacks = isinstance(fault, MissingArgumentError) or "Needed" in str(fault)
        is_certain = ("tandem", *words) not in WHOLE and (
            lacks or PLACEHOLDER.fullmatch(" ".join(words))
        )
        return None if is_certain else fault
    return None


# ---- make


@cache
def read_makefile() -> tuple[frozenset[str], frozenset[str]]:
    """Return the targets and the variables of the Makefile."""
    text = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([a-z-]+):", text, flags=re.MULTILINE)
    variables = re.findall(r"\$\((?:if \$\(|call named,)?([A-Z_]+)", text)
    return frozenset(targets), frozenset(variables)


@pytest.mark.parametrize("words", select_commands("make"))
def test_the_makefile_has_targets_and_variables_of_the_command(words):
    targets, variables = read_makefile()
    assert {word for word in words if "=" not in word} <= targets
    assert {word.partition("=")[0] for word in words if "=" in word} <= variables


# ---- aws


@cache
def load_operations(service: str) -> dict[str, OperationModel]:
    """Return the operations of an AWS service by their names on the command line."""
    model_name = "s3" if service == "s3api" else service  # whose `s3` has commands of its own
    model = botocore.session.get_session().get_service_model(model_name)
    return {xform_name(name, "-"): model.operation_model(name) for name in model.operation_names}


def list_aws_flags(words: tuple[str, ...]) -> set[str]:
    """Return the flags that the AWS CLI has for a service's operation.

    Raises:
        KeyError: the service has no such operation.
    """
    service, name = words[:2]
    if (service, name) in AWS_CUSTOM:
        return AWS_GLOBAL | AWS_CUSTOM[service, name]
    shape = load_operations(service)[name].input_shape
    members = shape.members if isinstance(shape, StructureShape) else {}
    names = {f"--{xform_name(member, '-')}" for member in members}
    negations = {
        f"--no-{xform_name(member, '-')}"
        for member, inner in members.items()
        if inner.type_name == "boolean"
    }
    return AWS_GLOBAL | names | negations


@pytest.mark.parametrize("words", select_commands("aws"))
def test_aws_has_operation_and_flags_of_the_command(words):
    assert list_flags(words) <= list_aws_flags(words)


@pytest.mark.parametrize(
    "words", [words for words in select_commands("aws") if "--query" in words.values[0]]
)
def test_a_query_names_fields_of_the_answer(words):
    query = jmespath.compile(words[words.index("--query") + 1])
    output = load_operations(words[0])[words[1]].output_shape
    assert set(list_fields(query.parsed)) - MAP_KEYS <= set(list_members(output))


def list_fields(expression: dict[str, Any]) -> Iterator[str]:
    """Yield each field that a JMESPath expression names."""
    if expression["type"] == "field":
        yield expression["value"]
    for child in expression["children"]:
        yield from list_fields(child)


def list_members(shape: Shape | None, above: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield each member of an answer, at any depth."""
    if isinstance(shape, ListShape):
        yield from list_members(shape.member, above)
    if isinstance(shape, StructureShape) and shape.name not in above:
        for name, member in shape.members.items():
            yield name
            yield from list_members(member, (*above, shape.name))


# ---- kubectl


@cache
def read_kubectl_help(program: Path, *verbs: str) -> str:
    """Return the help of a command of kubectl; that of kubectl itself says nothing of any flag."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(program.parent)}
    command = (
        [str(program), *verbs, "--help"] if verbs != ("options",) else [str(program), "options"]
    )
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize("words", select_commands("kubectl"))
def test_kubectl_has_verb_and_flags_of_the_command(kubectl, words):
    rest = words[2:] if words[0] == "-n" else words
    verbs = rest[:1]
    while verbs in KUBECTL_GROUPS and not rest[len(verbs)].startswith("-"):
        verbs = rest[: len(verbs) + 1]
    help_text = read_kubectl_help(kubectl, *verbs)
    assert f"  kubectl {' '.join(verbs)}" in help_text, "no such command"
    flags = help_text + read_kubectl_help(kubectl, "options")
    unknown = {
        flag
        for flag in list_flags(words)
        if not re.search(rf"^    (-\w, )?{flag}[=,]", flags, flags=re.MULTILINE)
    }
    assert unknown == set()


# ---- npx cdk


@cache
def read_cdk_flags() -> dict[str, frozenset[str]]:
    """Return the flags of each command of the installed CDK CLI."""
    registry = json.loads(
        (ROOT / "node_modules/aws-cdk/lib/cli/cli-type-registry.json").read_text()
    )
    options = {
        name: {**registry["globalOptions"], **command.get("options", {})}
        for name, command in registry["commands"].items()
    }
    return {name: frozenset(list_spellings(flags)) for name, flags in options.items()}


def list_spellings(options: dict[str, Any]) -> set[str]:
    """Return the spellings of options: name, alias, and the negation of a switch."""
    names = {f"--{name}" for name in options}
    aliases = {
        f"-{option['alias']}" for option in options.values() if isinstance(option.get("alias"), str)
    }
    return (
        names
        | aliases
        | {f"--no-{name}" for name, option in options.items() if option["type"] == "boolean"}
    )


@pytest.mark.parametrize(
    "words", [words for words in select_commands("npx") if len(words.values[0]) > 1]
)
def test_the_cdk_has_command_and_flags(words):
    assert words[0] == "cdk"
    assert list_flags(words) <= read_cdk_flags()[words[1]]


# ---- python, pytest


@cache
def list_declared_flags(place: Path) -> frozenset[str]:
    """Return the flags that a script or a package adds to its parsers."""
    files = [place] if place.is_file() else sorted(place.glob("*.py"))
    flags = {"--help"}
    for node in itertools.chain.from_iterable(
        ast.walk(ast.parse(file.read_text())) for file in files
    ):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            names = {value.value for value in node.args if isinstance(value, ast.Constant)}
            flags |= {name for name in names if name.startswith("-")}
    return frozenset(flags)


def find_script(words: tuple[str, ...]) -> Path:
    """Return the file or the package that `python` runs."""
    if words[0] != "-m":
        return ROOT / words[0]
    place = ROOT / words[1].replace(".", "/")
    return place if place.is_dir() else place.with_suffix(".py")


@pytest.mark.parametrize(
    "words", [words for words in select_commands("python") if words.values[0][0] != "-c"]
)
def test_python_has_script_and_flags_of_the_command(words):
    if words[:2] == ("-m", "pytest") or words[0] in OWN_SCRIPTS:  # the one as pytest
        return
    script = find_script(words)
    assert str(script.relative_to(ROOT)) in list_committed()
    assert list_flags(words) - {"-m"} <= list_declared_flags(script)


# ---- flags that stand alone


def list_known_flags(words: tuple[str, ...]) -> set[str]:
    """Return all flags of the command that a page names; of `make`, none."""
    program = words[0]
    rest = words[1:]
    if program == "tandem":
        return set(list_tandem_flags(tuple(app.parse_commands(list(rest))[0])))
    if program == "aws":
        return list_aws_flags(rest)
    if program == "npx" and len(rest) > 1:
        return set(read_cdk_flags()[rest[1]])
    if program == "python" and rest[0] not in {"-c", *OWN_SCRIPTS} and rest[1:2] != ("pytest",):
        return set(list_declared_flags(find_script(rest)))
    return set()


@pytest.mark.parametrize("path", CURRENT, ids=name_page)
def test_a_flag_is_of_a_command_of_its_page(path):
    flags = set(FOREIGN_FLAGS)
    if path.name in PAGE_COMMANDS:
        flags |= list_known_flags(PAGE_COMMANDS[path.name])
    for page, words in COMMANDS:
        if page == path:
            flags |= list_known_flags(words) | list_flags(words)
    spans = [span for span in list_spans(path) if re.match(r"--[a-z]", span)]
    assert {flag for span in spans for flag in list_flags(tuple(span.split()))} - flags == set()
