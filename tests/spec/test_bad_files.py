"""Files that are no spec: each is refused by faults in words, at once, and by nothing else."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tandem.spec.document import MAX_BYTES, read_document
from tandem.spec.faults import SpecError, SpecFault

LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(20)
)


def refused(path: Path) -> tuple[SpecFault, ...]:
    """Read a file that must be refused; return its faults."""
    with pytest.raises(SpecError) as caught:
        read_document(path)
    return caught.value.faults


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "bad.yaml"


@pytest.mark.parametrize(
    ("text", "got", "line"),
    [
        ("", "an empty file", None),
        ("\n\n", "an empty file", None),
        ("# only a comment\n", "an empty file", None),
        ("---\n...\n", "a scalar", None),
        ("a: 1\n\tb: 2\n", "a tab character", 2),
        ("a:\n\t- 1\n", "a tab character", 2),
        ("a: 1\n---\nb: 2\n", "a second document", 3),
        ("- a\n- b\n", "a sequence", None),
        ("just text\n", "a scalar", None),
        ("null\n", "a scalar", None),
        ("a: [1, 2\n", "a list `[` without `]`", 1),
        ("b: 1\na: {b: 1\n", "a mapping `{` without `}`", 2),
        ('b: 1\na: "open\nc: 2\n', "a quote that is never closed", 2),
        ("a: [1,, 2]\n", "a bracket or comma where a value should stand", 1),
        ("a: b: c\n", "a second `: ` in one value", 1),
        ("a:\n  - 1\n b: 2\n", "a line that fits no indentation above it", 3),
        ("a: 'x' y\n", "a line that fits no indentation above it, or text after a closed value", 1),
        ("- a\nb: 1\n", "a key at the indentation of a list", 2),
        ("a: -\n- b\n", "a list entry `- ` where none may stand", 1),
        ("a: 1\nb\n", "a line without `: `", 2),
        ("%YAML 9.9\n---\na: 1\n", "a %YAML line of another version", 1),
        ("%FOO\na: 1\n", "a line that begins with %", 1),
        ("a: *nowhere\n", "an alias (`*name`) of nothing", 1),
        ("a: &\n", "a value that begins with & or *", 1),
        ('a: "\\q"\n', "a backslash that begins no escape", 1),
        ("a: |x\n  b\n", "text behind `|` or `>`", 1),
        ("a: 1\n...\nb", "text after the end mark", 3),
        ("a: 1\nb: \x01\n", "a control character", 2),
        ("a: !<x\n", "a tag", 1),
        ("a: @x\n", "a value that begins with @", 1),
    ],
)
def test_rejects_a_file_that_is_no_mapping(file: Path, text: str, got: str, line: int | None) -> None:
    file.write_text(text)

    (fault,) = refused(file)

    assert fault.got.startswith(got)
    assert (fault.path, fault.line) == ("", line)
    assert all((fault.allowed, fault.change))
    assert not re.search("expected|found|allowed in this", fault.got)


@pytest.mark.parametrize(
    ("text", "path", "got", "line"),
    [
        ("a: 1\na: 2\n", "a", "the key twice (first on line 1)", 2),
        ("a: {b: 1, b: 2}\n", "a.b", "the key twice (first on line 1)", 1),
        ("a: [{b: 1}, {c: 1, c: 2}]\n", "a[1].c", "the key twice (first on line 1)", 1),
        ('a: 1\n"a": 2\n', "a", "the key twice (first on line 1)", 2),
        ("a: &x 1\nb: *x\n", "b", "an alias (`*name`)", 2),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", "c", "a merge key (`<<`)", 3),
        ("a: &a [*a]\n", "a[0]", "an alias (`*name`)", 1),
        ("a: !!python/object/apply:os.system [ls]\n", "a", "the tag !!python/object/apply:os.system", 1),
        ("a: !!python/object:x.Y {}\n", "a", "the tag !!python/object:x.Y", 1),
        ("a: !secret x\n", "a", "the tag !secret", 1),
        ("a: !!binary aGk=\n", "a", "the tag !!binary", 1),
        ("a: !!set {x}\n", "a", "the tag !!set", 1),
        ("? [a, b]\n: 1\n", "", "a collection as a key", 1),
        ("a: .nan\n", "a", ".nan", 1),
        ("a: .inf\n", "a", ".inf", 1),
        ("a: -.inf\n", "a", "-.inf", 1),
        ("a: 2026-02-30\n", "a", "2026-02-30", 1),
        ("a: !!int x\n", "a", "'x'", 1),
    ],
)  # fmt: skip
def test_rejects_what_a_spec_never_holds(file: Path, text: str, path: str, got: str, line: int) -> None:
    file.write_text(text)
    (fault,) = refused(file)
    assert (fault.path, fault.got, fault.line) == (path, got, line)
    assert all((fault.allowed, fault.change))


@pytest.mark.parametrize(
    ("raw", "got"),
    [
        (b"a: \xff\n", "byte 0xff at offset 3, which is not UTF-8"),
        ("a: ü\n".encode("latin-1"), "byte 0xfc at offset 3, which is not UTF-8"),
        ("a: 1\n".encode("utf-16"), "byte 0xff at offset 0, which is not UTF-8"),
        (b"a: x\x00y\n", "a control character"),
        (b"a: \x07\n", "a control character"),
        (b"\x7fELF\x02\x01\x01\x00", "a control character"),
    ],
)
def test_rejects_bytes_that_are_no_text(file: Path, raw: bytes, got: str) -> None:
    file.write_bytes(raw)
    (fault,) = refused(file)
    assert fault.got.startswith(got)


def test_tells_every_fault_of_form_at_once(file: Path) -> None:
    file.write_text("a: 1\na: 2\nb: &x 1\nc: *x\nd: !t 1\n")
    assert [(fault.path, fault.line) for fault in refused(file)] == [("a", 2), ("c", 4), ("d", 5)]


def test_rejects_an_alias_bomb_at_once(file: Path) -> None:
    file.write_text(LAUGHS)
    started = time.perf_counter()

    faults = refused(file)

    assert {fault.got for fault in faults} == {"an alias (`*name`)"}
    assert time.perf_counter() - started < 1


@pytest.mark.parametrize("text", ["[" * 2000, "a: " + "[" * 5000 + "]" * 5000, "{a: " * 3000 + "1" + "}" * 3000])
def test_rejects_deep_nesting_without_exhausting_the_stack(file: Path, text: str) -> None:
    file.write_text(text)
    (fault,) = refused(file)
    assert fault.path == ""


def test_rejects_a_file_of_more_than_a_mebibyte_unread(file: Path) -> None:
    file.write_text("a: " + "x" * MAX_BYTES)
    (fault,) = refused(file)
    assert fault.allowed == f"at most {MAX_BYTES} bytes"


def test_rejects_a_directory(tmp_path: Path) -> None:
    (fault,) = refused(tmp_path)
    assert (fault.got, fault.change) == ("a directory", "name a file")


def test_rejects_a_missing_file(tmp_path: Path) -> None:
    (fault,) = refused(tmp_path / "none.yaml")
    assert fault.got == "no such file or directory"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: on", True),
        ("a: no", False),
        ("a: 1.36", 1.36),
        ('a: "1.36"', "1.36"),
        ("a: 012345678901", "012345678901"),
        ("a: 111122223333", 111122223333),
        ("a: 2026-05-31", "2026-05-31"),
        ("a: 2026-05-31T10:00:00Z", "2026-05-31T10:00:00+00:00"),
        ("a: ~", None),
        ("a:", None),
        ("\ufeffa: 1", 1),
        ("a: 1\r\n", 1),
    ],
)
def test_reads_plain_values_as_yaml_does(file: Path, text: str, value: object) -> None:
    file.write_bytes(text.encode())
    assert read_document(file).data == {"a": value}


def test_knows_the_line_of_every_key(file: Path) -> None:
    file.write_text("a: 1\nb:\n  c: [1,\n    2]\n  d: {e: 5}\n")
    lines = read_document(file).lines
    assert lines == {"": 1, "a": 1, "b": 2, "b.c": 3, "b.c[0]": 3, "b.c[1]": 4, "b.d": 5, "b.d.e": 5}


@pytest.mark.parametrize(
    ("text", "read_as"), [("011122223333", "1229530843"), ("0x10", "16"), ("0b11", "3"), ("1:00", "60"), ("-010", "-8")]
)
def test_rejects_a_number_that_yaml_reads_as_another(file: Path, text: str, read_as: str) -> None:
    file.write_text(f"a: {text}\n")
    (fault,) = refused(file)
    assert (fault.path, fault.line) == ("a", 1)
    assert fault.got == f"{text}, which YAML 1.1 reads as {read_as}"


@pytest.mark.parametrize("text", ["0", "-7", "0.5", "1_000", "1e3", '"011122223333"', "089"])
def test_takes_a_decimal_number_and_quoted_digits(file: Path, text: str) -> None:
    file.write_text(f"a: {text}\n")
    assert "a" in read_document(file).data


def test_a_value_of_thousands_of_digits_does_not_hide_its_message(file: Path) -> None:
    file.write_text(f"a: {'9' * 5000}\n")
    (fault,) = refused(file)
    assert len(fault.got) < 100
