"""Every name that a page puts in code type is one of the tree, of an API that is installed, or
declared as foreign."""

from __future__ import annotations

import importlib.util
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import botocore.session
import lightkube.models
import pytest
import yaml
from document_text import (
    CURRENT,
    ROOT,
    list_block_commands,
    list_blocks,
    list_committed,
    list_span_commands,
    list_spans,
    name_page,
)
from write_pages import REFERENCES, walk_schema_keys

SOURCES = (
    "app.py",
    "benchmarks/",
    "charts/",
    "images/",
    "lambdas/",
    "rehearsal/",
    "stacks/",
    "supply/",
    "tandem/",
    "tests/doubles/",
    "environments/",
    "experiments/",
    "Makefile",
    "pyproject.toml",
    "cdk.json",
    "package.json",
)
TEXTS = (
    ".py",
    ".yaml",
    ".toml",
    ".json",
    ".jsonl",
    ".j2",
    ".sh",
    ".js",
    ".in",
    "Makefile",
    "Dockerfile",
)
EXECUTED = {"library.md"}  # whose blocks of Python tests/test_library.py runs
SERVICES = {"codebuild", "s3", "sns"}  # whose names pages use without a command of theirs
# Names that neither this tree nor an installed API has -> whose they are.
FOREIGN = {
    "ALL_PROXY": "a variable that Python's urllib reads",
    "CDK_VALIDATION": "a variable of the CDK",
    "CloudShell": "AWS CloudShell, of which botocore has no model",
    "CreateEnvironment": "AWS CloudShell",
    "ECRAuthorizationToken": "a kind of the External Secrets Operator",
    "ErrImagePull": "a reason of the kubelet",
    "FailedMount": "a reason of the kubelet",
    "HTTPS_PROXY": "a variable that Python's urllib reads",
    "ImagePullBackOff": "a reason of the kubelet",
    "gsm8k_cot": "a task of lm-eval",
    "openai_chat_completions_client.py": "a module of llmperf",
    "native-2.34.yaml": "a runtime that the reader adds",
    "skip_special_tokens": "a field of vLLM's and SGLang's requests",
    "prod.yaml": "the reader's environment and experiment in examples",
}
# What a program puts before or after a word to make a name.
COMPOSED = (r"TANDEM_STANDIN_", r"_image$", r"_\d+$")
FILE = re.compile(r"[\w-]+(?:\.[\w-]+)*\.(?:html|jsonl|json|md|py|toml|txt|yaml)\b")
CALL = re.compile(r"(?:await )?[A-Za-z_][\w.]*\(.*\)$")
# snake_case, CamelCase, lowerCamel, CAPS_WITH_UNDERSCORE; a plain word of English is no name
NAME = re.compile(r"(?<![\w/.<$-])[A-Za-z_]\w*(?:_\w+|[a-z][A-Z]\w*)")


def strip_prose(text: str) -> str:
    """Return Python without docstrings and comments."""
    code = re.sub(r'(?:\A|:\n)\s*r?"""(?:.|\n)*?"""', "", text)
    return re.sub(r"(?:^|\s)#.*", "", code)


@cache
def read_sources() -> dict[Path, str]:
    """Return the text of every program and data file, without what is prose."""
    names = [name for name in list_committed() if name.startswith(SOURCES) and name.endswith(TEXTS)]
    texts = {ROOT / name: (ROOT / name).read_text() for name in names if (ROOT / name).is_file()}
    return {
        path: strip_prose(text) if path.suffix == ".py" else text for path, text in texts.items()
    }


@cache
def join_sources() -> str:
    """Return the texts of all sources as one."""
    return "\n".join(read_sources().values())


@cache
def list_known_words() -> frozenset[str]:
    """Return every word of the sources, of the AWS services that pages name, and of Kubernetes'
    objects."""
    words = {word for text in read_sources().values() for word in re.findall(r"[A-Za-z_]\w*", text)}
    return frozenset(words | set(list_aws_words()) | set(list_kubernetes_words()) | FOREIGN.keys())


def list_aws_words() -> Iterator[str]:
    """Yield operations, shapes, members, values and error codes of the services."""
    session = botocore.session.get_session()
    commands = [
        words
        for path in CURRENT
        for words in (*list_block_commands(path), *list_span_commands(path))
    ]
    services = {words[1] for words in commands if words[0] == "aws"}
    # the CLI's other name of the same service
    for service in SERVICES | services - {"s3api"}:
        model = session.get_service_model(service)
        yield from model.operation_names
        for name in model.shape_names:
            shape = model.shape_for(name)
            yield name
            yield from getattr(shape, "members", ())
            yield from getattr(shape, "enum", ())
            yield shape.metadata.get("error", {}).get("code", name)


def list_kubernetes_words() -> Iterator[str]:
    """Yield the kinds and fields of Kubernetes' objects."""
    for module in pkgutil.iter_modules(lightkube.models.__path__, "lightkube.models."):
        spec = importlib.util.find_spec(module.name)
        text = Path(spec.origin).read_text()
        yield from re.findall(r"^(?:class|    )\s*(\w+)", text, flags=re.MULTILINE)


def list_code(path: Path) -> list[str]:
    """Return the spans of a page and the lines of its blocks of commands, files and Python."""
    languages = ("", "yaml") if path.name in EXECUTED else ("", "yaml", "python")
    lines = [line for block in list_blocks(path, *languages) for line in block.splitlines()]
    return [*list_spans(path), *lines]


def is_known(name: str) -> bool:
    """Return whether a name is a known word, or put together of one, or the name of a committed
    module."""
    rests = {re.sub(pattern, "", name) for pattern in COMPOSED}
    return bool(rests & list_known_words()) or f"{name}.py" in list_file_names()


@cache
def list_file_names() -> frozenset[str]:
    """Return the names of committed files, without their folders."""
    return frozenset(Path(name).name for name in list_committed())


@pytest.mark.parametrize("path", CURRENT, ids=name_page)
def test_a_name_in_code_type_exists(path):
    # -k: a part of a name
    texts = [re.sub(r"-k '.*?'", "", FILE.sub("", code)) for code in list_code(path)]
    names = {name for text in texts for name in NAME.findall(text)}
    assert {name for name in names if not is_known(name)} == set()


@pytest.mark.parametrize("path", CURRENT, ids=name_page)
def test_a_dotted_name_is_a_module_or_stands_in_one(path):
    packages = "tandem|rehearsal|benchmarks|charts|stacks|supply|doubles"
    texts = [FILE.sub("", code) for code in list_code(path)]
    names = {
        name
        for text in texts
        for name in re.findall(rf"(?<![\w./-])(?:{packages})(?:\.[A-Za-z_]\w*)+(?!\w*/)", text)
    }
    assert {name for name in names if not is_of_module(name)} == set()


def is_of_module(name: str) -> bool:
    """Return whether a dotted name is a module, a name of one, or a word of a program, such as a
    label's."""
    place, _, last = name.replace(".", "/").rpartition("/")
    modules = {f"{place}/{last}", f"{place}/{last}.py"} & list_committed()
    files = (ROOT / f"{place}.py", ROOT / place / "__init__.py")
    text = "".join(read_sources().get(file, "") for file in files)
    sources = join_sources()
    # the tables of an upgrade join by dots
    is_word = f'"{name}' in sources or f'"{name.replace(".", "/")}"' in sources
    return bool(modules) or re.search(rf"\b{last}\b", text) is not None or is_word


@pytest.mark.parametrize("path", CURRENT, ids=name_page)
def test_a_file_in_code_type_exists(path):
    """A file of the reader's own stands in a block of the page, or its name in capitals or
    digits."""
    spans = {
        name
        for span in list_spans(path)
        for name in FILE.findall(span)
        if re.search(r"^[a-z]", name)
    }
    own = {name for block in list_blocks(path, "") for name in FILE.findall(block)}
    sources = join_sources()
    patterns = {
        name: re.sub(r"\\-\d+", r"-\\S+", re.escape(name)) for name in spans - own - FOREIGN.keys()
    }
    unknown = {name for name in patterns if name not in list_file_names()}
    assert {name for name in unknown if not re.search(patterns[name], sources)} == set()


@pytest.mark.parametrize("path", CURRENT, ids=name_page)
def test_a_path_or_image_stands_in_a_program(path):
    spans = [
        re.fullmatch(r"(?:(?:GET|PUT|POST|DELETE) )?(/[a-z_][\w./-]*)", span)
        for span in list_spans(path)
    ]
    sources = join_sources()
    # /aws/: a log group
    paths = {match[1] for match in spans if match and not re.search("[A-Z]|^/aws/", match[1])}
    assert {place for place in paths if place not in sources} == set()


@cache
def list_key_paths() -> frozenset[str]:
    """Return the path of each key and section of an environment, an experiment and the catalogue's
    files."""
    keys = {
        key.path.replace("[]", "")
        for record in REFERENCES.values()
        for key in walk_schema_keys(record)
    }
    for path, text in read_sources().items():
        if "tandem/declarations/data" in str(path):
            keys |= set(walk_mapping(yaml.safe_load(text)))
    return frozenset(
        ".".join(key.split(".")[:depth]) for key in keys for depth in range(1, key.count(".") + 2)
    )


def walk_mapping(value: object, path: str = "") -> Iterator[str]:
    """Yield the path of each leaf of a file's mappings."""
    if not isinstance(value, dict):
        yield path
        return
    for key, inner in value.items():
        yield from walk_mapping(inner, f"{path}.{key}" if path else str(key))


@pytest.mark.parametrize("path", CURRENT, ids=name_page)
def test_a_path_of_a_key_is_one_of_a_schema(path):
    sections = "|".join(name for record in REFERENCES.values() for name in record.model_fields)
    spans = [
        FILE.sub("", span).replace("[]", "") for span in list_spans(path) if not CALL.match(span)
    ]
    paths = {
        key
        for span in spans
        for key in re.findall(rf"(?<![\w./-])(?:{sections})\.[\w.]*\w(?![\w.]*/)", span)
    }
    assert {key for key in paths if key not in list_key_paths()} == set()
