"""What a YAML parser complains of, in words that say what to change.

Invariant: no word of the parser itself is told; a complaint that is not in the table has the sentence of all the rest.
Source of the complaints: libyaml 0.2.5 scanner.c, parser.c, reader.c, composed by PyYAML 6.
"""

from __future__ import annotations

from dataclasses import dataclass

import yaml


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntaxProblem:
    """One complaint.

    Args:
        got: what stands in the file.
        change: what to do about it.
        at_start: the line to look at is where the thing begins, not where the parser gave up.
    """

    got: str
    change: str
    at_start: bool = False


_OTHER_PROBLEM = SyntaxProblem(
    got="text that is not YAML", change="write `key: value` lines; text with signs goes in quotes"
)
_TABLE: tuple[tuple[str, SyntaxProblem], ...] = (
    ("found unexpected end of stream", SyntaxProblem(
        got="a quote that is never closed", change="close the quote on this line", at_start=True)),
    ("found unexpected document indicator", SyntaxProblem(
        got="a quote that is never closed", change="close the quote on this line", at_start=True)),
    ("did not find expected ',' or ']'", SyntaxProblem(
        got="a list `[` without `]`, or without a comma between two entries", change="close it with ]", at_start=True)),
    ("did not find expected ',' or '}'", SyntaxProblem(
        got="a mapping `{` without `}`, or without a comma between two keys", change="close it with }", at_start=True)),
    ("did not find expected node content", SyntaxProblem(
        got="a bracket or comma where a value should stand", change="delete it, or write the value before it")),
    ("mapping values are not allowed", SyntaxProblem(
        got="a second `: ` in one value, or a key indented under a plain value",
        change="put the value in quotes, or indent the line as the one above")),
    ("did not find expected key", SyntaxProblem(
        got="a line that fits no indentation above it, or text after a closed value",
        change="indent it as its siblings, and put a value with signs in quotes")),
    ("did not find expected '-' indicator", SyntaxProblem(
        got="a key at the indentation of a list", change="indent it, or begin it with `- `")),
    ("block sequence entries are not allowed", SyntaxProblem(
        got="a list entry `- ` where none may stand", change="begin the list on a line of its own, indented")),
    ("could not find expected ':'", SyntaxProblem(
        got="a line without `: `", change="write `key: value`", at_start=True)),
    ("found character that cannot start any token", SyntaxProblem(
        got="a value that begins with @, % or a backquote", change="put the value in quotes")),
    ("found undefined alias", SyntaxProblem(
        got="an alias (`*name`) of nothing", change="write the value out, or put text that begins with * in quotes")),
    ("did not find expected alphabetic or numeric character", SyntaxProblem(
        got="a value that begins with & or *", change="put the value in quotes")),
    ("escape", SyntaxProblem(
        got="a backslash that begins no escape", change="write \\\\ for one backslash, or use single quotes")),
    ("did not find expected comment or line break", SyntaxProblem(
        got="text behind `|` or `>`", change="put the text in quotes, or begin it on the next line, indented")),
    ("incompatible YAML", SyntaxProblem(got="a %YAML line of another version", change="delete the line")),
    ("directive", SyntaxProblem(got="a line that begins with %", change="delete the line")),
    ("<document start>", SyntaxProblem(got="text after the end mark `...`", change="delete the mark or the text")),
    ("control characters", SyntaxProblem(got="a control character", change="delete it, or write it as an escape")),
    ("tag", SyntaxProblem(got="a tag (`!name`)", change="delete the tag, or put text that begins with ! in quotes")),
    ("'>'", SyntaxProblem(got="a tag (`!name`)", change="delete the tag, or put text that begins with ! in quotes")),
)  # fmt: skip


def explain_yaml_error(error: yaml.YAMLError) -> tuple[SyntaxProblem, int | None]:
    """Return what is wrong, and the 1-based line to look at; None where the parser names none.

    Args:
        error: of the parser; one of the reader has no mark.
    """
    complaint = str(getattr(error, "problem", None) or getattr(error, "reason", None) or "")
    problem = next((problem for words, problem in _TABLE if words in complaint), _OTHER_PROBLEM)
    start = getattr(error, "context_mark", None) if problem.at_start else None
    mark = start or getattr(error, "problem_mark", None)
    return problem, mark.line + 1 if mark else None
