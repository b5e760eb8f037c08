"""Files that are no spec: each is refused by faults in words, at once, and by nothing else."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tandem.declarations.document import MAX_BYTES, read_document
from tandem.declarations.faults import SpecError, SpecFault

LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(20)
)


def refused(path: Path) -> tuple[SpecFault, ...]:
    """Read a file that must be refused; return its faults."""
    with pytest.raises(SpecError) as caught:
        read_document(path)
    return caught.value.faults


@pytest.fixture
def file(tmp_path):
    return tmp_path / "bad.yaml"


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("", "an empty file"),
        ("- a\n", "a sequence"),
        ("null\n", "a scalar"),
    ],
)
def test_rejects_a_file_that_is_no_mapping(file, text, got):
    file.write_text(text)
    (fault,) = refused(file)
    assert (fault.path, fault.got, fault.line) == ("", got, None)


@pytest.mark.parametrize(
    ("text", "change", "line"),
    [
        ("a: 1\n\tb: 2\n", "replace each tab", 2),
        ("a: 1\n---\nb: 2\n", "remove the `---`", 2),
        ("a: [1, 2\n", "close the bracket", 1),
        ('b: 1\na: "open\nc: 2\n', "close the quote", 2),
        ("a: [1,, 2]\n", "close the bracket that begins here; one comma", 1),
        ("a: b: c\n", "put the value in quotes", 1),
        ("a:\n  - 1\n b: 2\n", "indent it", 3),
        ("%FOO\na: 1\n", "delete the line", 1),
        ("a: 'x' y\n", "indent it as its neighbors, or put the value in quotes", 1),
        ("a: 1\nb\n", "write `key: value`", 2),
        ("a: *nowhere\n", "put the value in quotes", 1),
        ('a: "\\q"\n', "write \\\\", 1),
        ("a: |x\n  b\n", "put the value in quotes, and a value of several lines under its key", 1),
        ("a: 1\n...\nb", "delete the line", 3),
        ("a: 1\nb: \x01\n", "delete the character", 2),
    ],
)
def test_rejects_what_is_no_yaml_at_its_line(file, text, change, line):
    file.write_text(text)
    (fault,) = refused(file)
    assert (fault.path, fault.line) == ("", line)
    assert fault.change.startswith(change)
    assert fault.got.startswith("no YAML: ")


@pytest.mark.parametrize(
    ("text", "path", "got", "line"),
    [
        ("a: 1\na: 2\n", "a", "the key twice (first on line 1)", 2),
        ("a: [{b: 1}, {c: 1, c: 2}]\n", "a[1].c", "the key twice (first on line 1)", 1),
        ('a: 1\n"a": 2\n', "a", "the key twice (first on line 1)", 2),
        ("a: &x 1\nb: *x\n", "b", "an alias (`*name`)", 2),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", "c.<<", "an alias (`*name`)", 3),
        (
            "a: !!python/object/apply:os.system [ls]\n",
            "a",
            "the tag !!python/object/apply:os.system",
            1,
        ),
        ("a: !secret x\n", "a", "the tag !secret", 1),
        ("? [a, b]\n: 1\n", "", "a collection as a key", 1),
        ("a: !!int x\n", "a", "'x'", 1),
    ],
)
def test_rejects_what_a_spec_never_holds(file, text, path, got, line):
    file.write_text(text)
    (fault,) = refused(file)
    assert (fault.path, fault.got, fault.line) == (path, got, line)
    assert all((fault.allowed, fault.change))


@pytest.mark.parametrize(
    ("raw", "got"),
    [
        (b"a: \xff\n", "byte 0xff at offset 3, which is not UTF-8"),
        ("a: 1\n".encode("utf-16"), "byte 0xff at offset 0, which is not UTF-8"),
        (b"a: x\x00y\n", "no YAML: control"),
    ],
)
def test_rejects_bytes_that_are_no_text(file, raw, got):
    file.write_bytes(raw)
    (fault,) = refused(file)
    assert fault.got.startswith(got)


def test_tells_every_fault_of_form_at_once(file):
    file.write_text("a: 1\na: 2\nb: &x 1\nc: *x\nd: !t 1\n")
    assert [(fault.path, fault.line) for fault in refused(file)] == [("a", 2), ("c", 4), ("d", 5)]


def test_rejects_an_alias_bomb_at_once(file):
    file.write_text(LAUGHS)
    start_s = time.perf_counter()

    faults = refused(file)

    assert {fault.got for fault in faults} == {"an alias (`*name`)"}
    assert time.perf_counter() - start_s < 1


@pytest.mark.parametrize(
    "text",
    ["[" * 2000, "a: " + "[" * 5000 + "]" * 5000, "{a: " * 3000 + "1" + "}" * 3000, "- " * 400_000],
)
def test_rejects_deep_nesting_without_exhausting_the_stack(file, text):
    file.write_text(text)
    (fault,) = refused(file)
    assert (fault.path, fault.got) == ("", "deeply nested collections")


def test_rejects_a_file_of_more_than_a_mebibyte_unread(file):
    file.write_text("a: " + "x" * MAX_BYTES)
    (fault,) = refused(file)
    assert fault.allowed == f"at most {MAX_BYTES} bytes"


def test_rejects_a_missing_file(tmp_path):
    (fault,) = refused(tmp_path / "none.yaml")
    assert fault.got == "file not found"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: on", True),
        ("a: 1.36", 1.36),
        ('a: "1.36"', "1.36"),
        ("a: 012345678901", "012345678901"),
        ("a: 2026-05-31", "2026-05-31"),
        ("a: 1:00", "1:00"),
        ("a: -7", -7),
        ("a: 1_000", 1000),
        ("a: ~", None),
        ("\ufeffa: 1", 1),
        ("a: 1\r\n", 1),
    ],
)
def test_reads_decimal_numbers_and_leaves_the_rest_text(file, text, value):
    file.write_bytes(text.encode())
    assert read_document(file).data == {"a": value}


def test_knows_the_line_of_every_key(file):
    file.write_text("a: 1\nb:\n  c: [1,\n    2]\n  d: {e: 5}\n")
    lines = read_document(file).lines
    assert lines == {
        "": 1,
        "a": 1,
        "b": 2,
        "b.c": 3,
        "b.c[0]": 3,
        "b.c[1]": 4,
        "b.d": 5,
        "b.d.e": 5,
    }


def test_value_of_thousands_of_digits_does_not_hide_its_message(file):
    file.write_text(f"a: {'9' * 5000}\n")
    (fault,) = refused(file)
    assert len(fault.got) < 100
