"""Read one YAML file strictly: plain data with the line of every key, or faults.

Invariant: what passes is a single mapping of plain values; duplicate keys, aliases, tags, a second
document and oversized or undecodable files never reach a schema.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from tandem.spec.faults import SpecError, SpecFault
from tandem.spec.yaml_syntax import explain_yaml_error

LONGEST_SPELLING = 80  # of a value in a message; a longer one hides the message
ODD_NUMBER = re.compile(r"[-+]?(0[0-9_]|0[bx]|[0-9_]+:)")  # octal, binary, hexadecimal, base 60
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
MAX_BYTES = 1_048_576  # a spec is a page of text; more is a mistake or an attack

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PLAIN_TAGS = frozenset(
    f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float", "str", "timestamp", "map", "seq")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlDocument:
    """A parsed file.

    Args:
        file: the name to report.
        data: the mapping, made of dict, list, str, int, float, bool and None; dates are ISO strings.
        lines: key path to 1-based line.
    """

    file: str
    data: dict[str, Any]
    lines: dict[str, int]


def read_document(path: Path, file: str | None = None) -> YamlDocument:
    """Read `path` as one strict YAML mapping.

    Raises:
        SpecError: the file is missing, a directory, too large, not UTF-8, not YAML, empty, not a mapping,
            holds two documents, or uses duplicate keys, aliases, merge keys or tags.
    """
    name = file or str(path)
    text = _read_text(path, name)
    try:
        loader = _Loader(text)
        node = _single_node(loader, name)
        reader = _NodeReader(name, loader)
        data = reader.value(node, "")
    except yaml.YAMLError as error:
        raise SpecError([_syntax_fault(error, text, name)]) from None
    except RecursionError:
        raise SpecError(
            [_file_fault(name, "deeply nested collections", "a few levels of nesting", "flatten it")]
        ) from None
    if reader.faults:
        raise SpecError(reader.faults)
    return YamlDocument(file=name, data=data, lines=reader.lines)


def _read_text(path: Path, name: str) -> str:
    try:
        raw = path.read_bytes()
    except IsADirectoryError:
        raise SpecError([_file_fault(name, "a directory", "a YAML file", "name a file")]) from None
    except OSError as error:
        fault = _file_fault(name, str(error.strerror).lower(), "a readable YAML file", "create it or fix its path")
        raise SpecError([fault]) from None
    if len(raw) > MAX_BYTES:
        raise SpecError([_file_fault(name, f"{len(raw)} bytes", f"at most {MAX_BYTES} bytes", "shorten the file")])
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        got = f"byte 0x{raw[error.start]:02x} at offset {error.start}, which is not UTF-8"
        raise SpecError([_file_fault(name, got, "UTF-8 text", "save the file as UTF-8")]) from None


def _single_node(loader: Any, name: str) -> yaml.MappingNode:
    if not loader.check_node():
        raise SpecError([_file_fault(name, "an empty file", "a mapping of keys", "start from `tandem new NAME`")])
    node = loader.get_node()
    if loader.check_node():
        line = loader.get_node().start_mark.line + 1
        raise SpecError(
            [_file_fault(name, "a second document", "one document", "remove the `---` and what follows it", line)]
        )
    if not isinstance(node, yaml.MappingNode):
        raise SpecError([_file_fault(name, f"a {node.id}", "a mapping of keys", "write `key: value` lines")])
    return node


def _file_fault(name: str, got: str, allowed_text: str, change: str, line: int | None = None) -> SpecFault:
    return SpecFault(file=name, path="", got=got, allowed=allowed_text, change=change, line=line)


def _syntax_fault(error: yaml.YAMLError, text: str, name: str) -> SpecFault:
    """Return the fault of a text that is not YAML, with the line to look at."""
    mark = getattr(error, "problem_mark", None)
    complaint = str(getattr(error, "problem", None))
    mark_line = mark.line + 1 if mark else None
    if "tab character" in complaint or "'\\t'" in complaint or _has_tab_indent(text, mark_line):
        return _file_fault(
            name, "a tab character", "spaces for indentation", "replace each tab by two spaces", mark_line
        )
    problem, line = explain_yaml_error(error)
    if line is None:  # the reader names an offset alone
        line = next((number for number, row in enumerate(text.split("\n"), start=1) if _CONTROL.search(row)), None)
    return _file_fault(name, problem.got, "`key: value` lines, indented by spaces", problem.change, line)


def _has_tab_indent(text: str, line: int | None) -> bool:
    lines = text.splitlines()
    if line is None or line > len(lines):
        return False
    return "\t" in lines[line - 1][: -len(lines[line - 1].lstrip()) or None]


class _NodeReader:
    """Turn a node tree into plain values, noting lines and collecting faults."""

    def __init__(self, file: str, loader: Any) -> None:
        self.file = file
        self.faults: list[SpecFault] = []
        self.lines: dict[str, int] = {}
        self._loader = loader
        self._node_ids: set[int] = set()

    def value(self, node: yaml.Node, path: str) -> Any:
        """Return the plain value of `node`; an unusable one is a fault and becomes None."""
        if id(node) in self._node_ids:
            return self.faults.append(self._alias(path))
        self.lines.setdefault(path, node.start_mark.line + 1)
        self._node_ids.add(id(node))
        if node.tag not in _PLAIN_TAGS:
            return self._fault(node, path, f"the tag {_short_tag(node.tag)}", "untagged plain values", "remove the tag")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, f"{path}[{index}]") for index, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _alias(self, path: str) -> SpecFault:
        # an alias is its anchor's node: where it stands is only known of its key, or of the list around it
        line = self.lines.get(path) or self.lines.get(path.rpartition("[")[0])
        return SpecFault(
            file=self.file, path=path, got="an alias (`*name`)", allowed="each value written out",
            change="copy the value here", line=line,
        )  # fmt: skip

    def _mapping(self, node: yaml.MappingNode, path: str) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node, path)
            if key is None:
                continue
            child = f"{path}.{key}" if path else key
            if key in result:
                first_line = self.lines[child]
                self._fault(key_node, child, f"the key twice (first on line {first_line})", "one value", "delete one")
                continue
            self.lines[child] = key_node.start_mark.line + 1
            result[key] = self.value(value_node, child)
        return result

    def _key(self, node: yaml.Node, path: str) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            self._fault(node, path, "a collection as a key", "text keys", "write a plain key")
            return None
        if node.tag == "tag:yaml.org,2002:merge":
            self._fault(node, path, "a merge key (`<<`)", "each key written out", "copy the keys here")
            return None
        return str(node.value)

    def _scalar(self, node: yaml.Node, path: str) -> Any:
        text = node.value if len(node.value) <= LONGEST_SPELLING else node.value[:LONGEST_SPELLING] + "..."
        try:
            value = self._loader.construct_object(node)
        except (ValueError, yaml.YAMLError):
            if node.tag.endswith(":timestamp"):
                return self._fault(
                    node, path, text, "a day of the calendar, YYYY-MM-DD", "write the day that was meant"
                )
            return self._fault(node, path, repr(text), "a plain value", "put the text in quotes")
        if isinstance(value, int | float) and not isinstance(value, bool) and ODD_NUMBER.match(node.value):
            got = f"{text}, which YAML 1.1 reads as {value}"
            return self._fault(node, path, got, "a decimal number, or text in quotes", "put it in quotes if it is text")
        if isinstance(value, float) and not math.isfinite(value):
            return self._fault(node, path, node.value, "a finite number", "write a number")
        return value.isoformat() if isinstance(value, date) else value

    def _fault(self, node: yaml.Node, path: str, got: str, allowed_text: str, change: str) -> None:
        line = node.start_mark.line + 1
        self.faults.append(
            SpecFault(file=self.file, path=path, got=got, allowed=allowed_text, change=change, line=line)
        )


def _short_tag(tag: str) -> str:
    return tag.replace("tag:yaml.org,2002:", "!!")
