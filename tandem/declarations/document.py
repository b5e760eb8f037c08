"""Read one YAML file strictly: plain data with the line of every key, or faults.

Invariant: what passes is a single mapping of plain values; duplicate keys, aliases, tags, a second
document and oversized or undecodable files never reach a schema. Numbers are decimal; dates, and
what YAML 1.1 reads as octal, binary or base 60, stay text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import yaml

from tandem.declarations.faults import SpecError, SpecFault

LONGEST_SPELLING = 80  # of a value in a message; a longer one hides the message
MAX_BYTES = 1_048_576  # a spec is a page of text; more is a mistake or an attack
MAX_DEPTH = 100  # collections in each other; the composer ends the process at some 50,000

_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = {f"{_TAG}{kind}" for kind in ("null", "bool", "int", "float", "str", "map", "seq")}
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# A pattern of the parser's complaint, what to do about it, and whether the line to look at is where
# the faulty thing begins; the first that fits is reported. Source: libyaml 0.2.5 scanner.c,
# parser.c, reader.c, composed by PyYAML 6.
_HINTS = (
    (r"\t|tab character", "replace each tab by two spaces", False),
    (r"end of stream|document indicator", "close the quote that begins here", True),
    (
        r"expected ',' or|node content",
        "close the bracket that begins here; one comma between two entries",
        True,
    ),
    (r"find expected ':'", "write `key: value`", True),
    (r"another document", "remove the `---` and what follows it", False),
    (r"'-' indicator|block sequence", "indent it as its neighbors", False),
    (r"expected key", "indent it as its neighbors, or put the value in quotes", False),
    (r"document start|directive|YAML", "delete the line", False),
    (r"control characters", "delete the character, or write it as an escape", False),
    (r"escape", r"write \\ for one backslash, or use single quotes", False),
    (r"", "put the value in quotes, and a value of several lines under its key", False),
)


def _list_plain_resolvers() -> dict[str, list[Any]]:
    """Return YAML's own resolvers of null, true and false, by the first letter."""
    tags = (f"{_TAG}null", f"{_TAG}bool")
    resolvers = {}
    for letter, entries in yaml.SafeLoader.yaml_implicit_resolvers.items():
        resolvers[letter] = [entry for entry in entries if entry[0] in tags]
    return resolvers


class _PlainLoader(_Loader):  # type: ignore[misc]  # a class that PyYAML may have compiled
    """Resolves what a plain scalar is, as the module says."""

    yaml_implicit_resolvers: ClassVar = _list_plain_resolvers()


_DIGITS = list("-+0123456789")
_PlainLoader.add_implicit_resolver(f"{_TAG}int", re.compile(r"[-+]?(0|[1-9][0-9_]*)$"), _DIGITS)
_PlainLoader.add_implicit_resolver(
    f"{_TAG}float", re.compile(r"[-+]?[0-9]+\.[0-9]*([eE][-+]?[0-9]+)?$"), _DIGITS
)


@dataclass(frozen=True, kw_only=True)
class YamlDocument:
    """A parsed file.

    Args:
        file: the name to report.
        data: the mapping, made of dict, list, str, int, float, bool and None.
        lines: key path to 1-based line.
    """

    file: str
    data: dict[str, Any]
    lines: dict[str, int]

    def build_fault(self, path: str, got: str, allowed: str, change: str) -> SpecFault:
        """Return a fault at a key path, with its line, or of a missing key with its section's."""
        line = self.lines.get(path, self.lines.get(path.rpartition(".")[0]))
        return SpecFault(self.file, path, got, allowed, change, line)


def read_document(path: Path, file: str | None = None) -> YamlDocument:
    """Read `path` as one strict YAML mapping.

    Raises:
        SpecError: the file is missing, a directory, too large, not UTF-8, not YAML, empty, not a
            mapping, holds two documents, or uses duplicate keys, aliases, merge keys or tags.
    """
    name = file or str(path)
    text = _read_text(path, name)
    depth = 0
    try:
        # the parser keeps no stack of C; what composes its events does
        for event in yaml.parse(text, _PlainLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(
                event, yaml.CollectionEndEvent
            )
            if depth > MAX_DEPTH:
                raise _refuse_file(
                    name, "deeply nested collections", "a few levels of nesting", "flatten it"
                )
        loader = _PlainLoader(text)
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            got = f"a {node.id}" if node else "an empty file"
            change = "write `key: value` lines, or start from `tandem new NAME`"
            raise _refuse_file(name, got, "a mapping of keys", change)
        reader = _NodeReader(name, loader)
        data = reader.read_value(node, "")
    except yaml.YAMLError as error:
        raise _refuse_syntax(error, text, name) from None
    if reader.faults:
        raise SpecError(reader.faults)
    return YamlDocument(file=name, data=data, lines=reader.lines)


def _refuse_file(
    name: str, got: str, allowed: str, change: str, line: int | None = None
) -> SpecError:
    return SpecError([SpecFault(name, "", got, allowed, change, line)])


def _read_text(path: Path, name: str) -> str:
    try:
        raw = path.read_bytes()
    except OSError as error:
        is_absent = isinstance(error, FileNotFoundError)
        got = "file not found" if is_absent else str(error.strerror).lower()
        raise _refuse_file(name, got, "a readable YAML file", "create it or fix its path") from None
    if len(raw) > MAX_BYTES:
        raise _refuse_file(
            name, f"{len(raw)} bytes", f"at most {MAX_BYTES} bytes", "shorten the file"
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        got = f"byte 0x{raw[error.start]:02x} at offset {error.start}, which is not UTF-8"
        raise _refuse_file(name, got, "UTF-8 text", "save the file as UTF-8") from None


def _refuse_syntax(error: Any, text: str, name: str) -> SpecError:
    """Return the fault of a text that is not YAML, with the line to look at."""
    mark = getattr(error, "problem_mark", None)
    # the reader names an offset alone
    number = mark.line + 1 if mark else text[: error.position].count("\n") + 1
    row = (text.splitlines() + [""] * number)[number - 1]
    complaint = getattr(error, "problem", None) or getattr(error, "reason", "")
    indent = row[: len(row) - len(row.lstrip())]
    change, is_told_at_start = next(
        (change, is_told_at_start)
        for pattern, change, is_told_at_start in _HINTS
        if re.search(pattern, f"{complaint}{indent}")
    )
    if is_told_at_start and error.context_mark:
        number = error.context_mark.line + 1
    return _refuse_file(
        name, f"no YAML: {complaint}", "`key: value` lines, indented by spaces", change, number
    )


class _NodeReader:
    """Turn a node tree into plain values, noting lines and collecting faults."""

    def __init__(self, file: str, loader: Any) -> None:
        self.file = file
        self.faults: list[SpecFault] = []
        self.lines: dict[str, int] = {}
        self._loader = loader
        self._node_ids: set[int] = set()

    def read_value(self, node: yaml.Node, path: str) -> Any:
        """Return the plain value of `node`; an unusable one is a fault and becomes None."""
        if id(node) in self._node_ids:
            # an alias is its anchor's node: where it stands is only known of its key, or of the
            # list around it
            line = self.lines.get(path) or self.lines.get(path.rpartition("[")[0])
            return self._note(
                line, path, "an alias (`*name`)", "each value written out", "copy the value here"
            )
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        self._node_ids.add(id(node))
        if node.tag not in _PLAIN_TAGS:
            tag = node.tag.replace(_TAG, "!!")
            return self._note(
                line, path, f"the tag {tag}", "untagged plain values", "remove the tag"
            )
        if isinstance(node, yaml.MappingNode):
            return self._read_mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [
                self.read_value(item, f"{path}[{index}]") for index, item in enumerate(node.value)
            ]
        try:
            return self._loader.construct_object(node)
        except ValueError:  # a tag on what is not of its kind, or thousands of digits
            return self._note(
                line, path, repr(node.value[:LONGEST_SPELLING]), "a plain value", "put it in quotes"
            )

    def _read_mapping(self, node: yaml.MappingNode, path: str) -> dict[str, Any]:
        result = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = str(key_node.value)
            child = f"{path}.{key}" if path else key
            if not isinstance(key_node, yaml.ScalarNode):
                self._note(line, path, "a collection as a key", "text keys", "write a plain key")
            elif key in result:
                got = f"the key twice (first on line {self.lines[child]})"
                self._note(line, child, got, "one value", "delete one")
            else:
                self.lines[child] = line
                result[key] = self.read_value(value_node, child)
        return result

    def _note(self, line: int | None, path: str, got: str, allowed: str, change: str) -> None:
        self.faults.append(SpecFault(self.file, path, got, allowed, change, line))
