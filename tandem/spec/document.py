"""Read one YAML file strictly: plain data with the line of every key, or faults.

Invariant: what passes is a single mapping of plain values; duplicate keys, aliases, tags, a second
document and oversized or undecodable files never reach a schema. No word of the parser itself is told.
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

LONGEST_SPELLING = 80  # of a value in a message; a longer one hides the message
ODD_NUMBER = re.compile(r"[-+]?(0[0-9_]|0[bx]|[0-9_]+:)")  # octal, binary, hexadecimal, base 60
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
MAX_BYTES = 1_048_576  # a spec is a page of text; more is a mistake or an attack

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PLAIN_KINDS = ("null", "bool", "int", "float", "str", "timestamp", "map", "seq")
_PLAIN_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in _PLAIN_KINDS}
_PLAIN_LINES = "`key: value` lines, indented by spaces"

# Words of the parser's complaint, what stands in the file and what to do about it; the first that fits is told.
# Source: libyaml 0.2.5 scanner.c, parser.c, reader.c, composed by PyYAML 6.
_COMPLAINTS = (
    ("found unexpected end of stream", "a quote that is never closed", "close the quote on this line"),
    ("found unexpected document indicator", "a quote that is never closed", "close the quote on this line"),
    ("expected ',' or ']'", "a list `[` without `]`, or without a comma between two entries", "close it with ]"),
    ("expected ',' or '}'", "a mapping `{` without `}`, or without a comma between two keys", "close it with }"),
    ("expected node content", "a bracket or comma where a value should stand", "delete it, or write the value"),
    ("mapping values are not allowed", "a second `: ` in one value, or a key under it", "put the value in quotes"),
    ("expected key", "a line that fits no indentation above it, or text after a closed value", "indent or quote it"),
    ("expected '-' indicator", "a key at the indentation of a list", "indent it, or begin it with `- `"),
    ("block sequence entries", "a list entry `- ` where none may stand", "begin the list on a line of its own"),
    ("could not find expected ':'", "a line without `: `", "write `key: value`"),
    ("cannot start any token", "a value that begins with @, % or a backquote", "put the value in quotes"),
    ("found undefined alias", "an alias (`*name`) of nothing", "write the value out, or put it in quotes"),
    ("alphabetic or numeric character", "a value that begins with & or *", "put the value in quotes"),
    ("escape", "a backslash that begins no escape", "write \\\\ for one backslash, or use single quotes"),
    ("expected comment or line break", "text behind `|` or `>`", "put it in quotes, or on the next line, indented"),
    ("incompatible YAML", "a %YAML line of another version", "delete the line"),
    ("directive", "a line that begins with %", "delete the line"),
    ("<document start>", "text after the end mark `...`", "delete the mark or the text"),
    ("control characters", "a control character", "delete it, or write it as an escape"),
    ("tag", "a tag (`!name`)", "delete the tag, or put text that begins with ! in quotes"),
    ("'>'", "a tag (`!name`)", "delete the tag, or put text that begins with ! in quotes"),
    ("", "text that is not YAML", "write `key: value` lines; text with signs goes in quotes"),
)
# of what is never closed or has no value, the line to look at is where it begins, not where the parser gave up
_TOLD_AT_START = tuple(_COMPLAINTS[index][0] for index in (0, 1, 2, 3, 9))


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

    def build_fault(self, path: str, got: str, allowed: str, change: str) -> SpecFault:
        """Return a fault at a key path, with its line, or of a missing key with its section's."""
        line = self.lines.get(path, self.lines.get(path.rpartition(".")[0]))
        return SpecFault(self.file, path, got, allowed, change, line)


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
        if not loader.check_node():
            raise _refuse_file(name, "an empty file", "a mapping of keys", "start from `tandem new NAME`")
        node: Any = loader.get_node()
        if loader.check_node():
            second: Any = loader.get_node()
            change = "remove the `---` and what follows it"
            raise _refuse_file(name, "a second document", "one document", change, second.start_mark.line + 1)
        if not isinstance(node, yaml.MappingNode):
            raise _refuse_file(name, f"a {node.id}", "a mapping of keys", "write `key: value` lines")
        reader = _NodeReader(name, loader)
        data = reader.read_value(node, "")
    except yaml.YAMLError as error:
        raise _refuse_syntax(error, text, name) from None
    except RecursionError:
        raise _refuse_file(name, "deeply nested collections", "a few levels of nesting", "flatten it") from None
    if reader.faults:
        raise SpecError(reader.faults)
    return YamlDocument(file=name, data=data, lines=reader.lines)


def _refuse_file(name: str, got: str, allowed: str, change: str, line: int | None = None) -> SpecError:
    return SpecError([SpecFault(name, "", got, allowed, change, line)])


def _read_text(path: Path, name: str) -> str:
    try:
        raw = path.read_bytes()
    except IsADirectoryError:
        raise _refuse_file(name, "a directory", "a YAML file", "name a file") from None
    except OSError as error:
        got = str(error.strerror).lower()
        raise _refuse_file(name, got, "a readable YAML file", "create it or fix its path") from None
    if len(raw) > MAX_BYTES:
        raise _refuse_file(name, f"{len(raw)} bytes", f"at most {MAX_BYTES} bytes", "shorten the file")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        got = f"byte 0x{raw[error.start]:02x} at offset {error.start}, which is not UTF-8"
        raise _refuse_file(name, got, "UTF-8 text", "save the file as UTF-8") from None


def _refuse_syntax(error: yaml.YAMLError, text: str, name: str) -> SpecError:
    """Return the fault of a text that is not YAML, with the line to look at."""
    complaint = str(getattr(error, "problem", None) or getattr(error, "reason", None) or "")
    mark, lines = getattr(error, "problem_mark", None), text.splitlines()
    row = lines[mark.line] if mark and mark.line < len(lines) else ""
    if "tab character" in complaint or "'\\t'" in complaint or "\t" in row[: len(row) - len(row.lstrip())]:
        line = mark.line + 1 if mark else None
        return _refuse_file(name, "a tab character", "spaces for indentation", "replace each tab by two spaces", line)
    words, got, change = next(entry for entry in _COMPLAINTS if entry[0] in complaint)
    if words in _TOLD_AT_START:
        mark = getattr(error, "context_mark", None) or mark
    if mark:
        return _refuse_file(name, got, _PLAIN_LINES, change, mark.line + 1)
    # the reader names an offset alone
    line = next((number for number, row in enumerate(text.split("\n"), start=1) if _CONTROL.search(row)), None)
    return _refuse_file(name, got, _PLAIN_LINES, change, line)


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
            # an alias is its anchor's node: where it stands is only known of its key, or of the list around it
            line = self.lines.get(path) or self.lines.get(path.rpartition("[")[0])
            return self._note(line, path, "an alias (`*name`)", "each value written out", "copy the value here")
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        self._node_ids.add(id(node))
        if node.tag not in _PLAIN_TAGS:
            tag = node.tag.replace("tag:yaml.org,2002:", "!!")
            return self._note(line, path, f"the tag {tag}", "untagged plain values", "remove the tag")
        if isinstance(node, yaml.MappingNode):
            return self._read_mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.read_value(item, f"{path}[{index}]") for index, item in enumerate(node.value)]
        return self._read_scalar(node, path, line)

    def _read_mapping(self, node: yaml.MappingNode, path: str) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line, key = key_node.start_mark.line + 1, str(key_node.value)
            child = f"{path}.{key}" if path else key
            if not isinstance(key_node, yaml.ScalarNode):
                self._note(line, path, "a collection as a key", "text keys", "write a plain key")
            elif key_node.tag == "tag:yaml.org,2002:merge":
                self._note(line, path, "a merge key (`<<`)", "each key written out", "copy the keys here")
            elif key in result:
                got = f"the key twice (first on line {self.lines[child]})"
                self._note(line, child, got, "one value", "delete one")
            else:
                self.lines[child] = line
                result[key] = self.read_value(value_node, child)
        return result

    def _read_scalar(self, node: yaml.Node, path: str, line: int) -> Any:
        text = node.value if len(node.value) <= LONGEST_SPELLING else node.value[:LONGEST_SPELLING] + "..."
        try:
            value = self._loader.construct_object(node)
        except (ValueError, yaml.YAMLError):
            if node.tag.endswith(":timestamp"):
                allowed = "a day of the calendar, YYYY-MM-DD"
                return self._note(line, path, text, allowed, "write the day that was meant")
            return self._note(line, path, repr(text), "a plain value", "put the text in quotes")
        if isinstance(value, int | float) and not isinstance(value, bool) and ODD_NUMBER.match(node.value):
            got, change = f"{text}, which YAML 1.1 reads as {value}", "put it in quotes if it is text"
            return self._note(line, path, got, "a decimal number, or text in quotes", change)
        if isinstance(value, float) and not math.isfinite(value):
            return self._note(line, path, node.value, "a finite number", "write a number")
        return value.isoformat() if isinstance(value, date) else value

    def _note(self, line: int | None, path: str, got: str, allowed: str, change: str) -> None:
        self.faults.append(SpecFault(self.file, path, got, allowed, change, line))
