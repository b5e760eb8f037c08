"""Print how easily the source can be found, read and changed (`make house`); no gate depends on it.

The figures are not a goal: a name that only avoids a pattern, or code moved out of the measured folders, is a defect.
The product is every tracked Python file except those of NOT_PRODUCT.
"""

from __future__ import annotations

import argparse
import ast
import collections
import io
import re
import subprocess
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

NOT_PRODUCT = ("tests", "benchmarks", "rehearsal", "docs")
MAX_MODULE_LINES, MAX_SMALL_LINES = 500, 3
# words as text, which reads better than a list
IRREGULAR_WORDS = """
told said found held left had seen known sent begun made drawn spoken shown given taken kept met built bought lost
written hidden chosen understood brought gone won
"""
SMALL_WORDS = """
because beside between behind itself of from with whole only other others each one every again apart above below before
after while until since though worth form words course
"""
NO_PARTICIPLES = "embed speed feed need seed bed shared unread red"
FILLER_VERBS = ("get_", "do_", "make_", "process_", "handle_", "perform_")
FILLER_LOCALS = {"one", "each", "whole", "it", "other"}
SKIPPED_TOKENS = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class SourceCount:
    """Counts over some files: their lines and names."""

    code_lines: int = 0
    docstring_lines: int = 0
    long_modules: list[str] = field(default_factory=list)
    functions: list[tuple[str, int]] = field(default_factory=list)
    module_functions: list[tuple[str, int]] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    stored_names: collections.Counter[str] = field(default_factory=collections.Counter)
    used_names: collections.Counter[str] = field(default_factory=collections.Counter)

    def add_file(self, path: Path) -> None:
        """Count one file."""
        text = path.read_text()
        tree = ast.parse(text)
        docstring_lines = {
            line
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | Function) and ast.get_docstring(node) is not None
            for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
        }
        code_lines = {
            line
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type not in SKIPPED_TOKENS
            for line in range(token.start[0], token.end[0] + 1)
        }
        self.code_lines += len(code_lines - docstring_lines)
        self.docstring_lines += len(docstring_lines)
        if len(text.splitlines()) > MAX_MODULE_LINES:
            self.long_modules.append(str(path))
        self.module_functions += [
            (node.name, count_body_lines(node)) for node in tree.body if isinstance(node, Function)
        ]
        self._add_names(tree)

    def _add_names(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, Function) and not (node.name.startswith("__") or is_property(node)):
                self.functions.append((node.name, count_body_lines(node)))
            elif isinstance(node, ast.ClassDef):
                self.classes.append(node.name)
            elif isinstance(node, ast.Name):
                counter = self.stored_names if isinstance(node.ctx, ast.Store) else self.used_names
                counter[node.id] += 1
            elif isinstance(node, ast.Attribute):
                self.used_names[node.attr] += 1
            elif isinstance(node, ast.arg):
                self.stored_names[node.arg] += 1


def list_rows(paths: Iterable[Path]) -> list[tuple[str, float, float, list[str]]]:
    """Return rows: the limited quantity, its figure, the limit (negative: a least one), and the names that count."""
    files = list(paths)
    product = SourceCount()
    for path in files:
        if path.parts[0] not in NOT_PRODUCT:
            product.add_file(path)
    names = [name for name, _ in product.functions]
    public_names = [name for name, _ in product.module_functions if not name.startswith("_")]
    private_names = [name for name, _ in product.module_functions if name.startswith("_")]
    short_classes = [name for name in product.classes if len(split_words(name)) == 1]
    class_counts = collections.Counter(name for name in product.classes if not name.startswith("_"))
    bad_locals = {
        name: count for name, count in product.stored_names.items() if name in FILLER_LOCALS or is_participle(name)
    }
    body_lines = sorted(lines for _, lines in product.functions)
    bad_modules = [
        str(path)
        for path in files
        if path.parts[0] not in NOT_PRODUCT
        and not path.stem.startswith("__")
        and any(word in SMALL_WORDS.split() or is_participle(word) for word in path.stem.strip("_").split("_"))
    ]
    small_functions = [
        name for name, lines in product.module_functions if lines <= MAX_SMALL_LINES and product.used_names[name] <= 1
    ]
    long_functions = [name for name, lines in product.functions if lines == body_lines[-1]]
    return [
        ("docstring lines, % of code", 100 * product.docstring_lines / product.code_lines, -20, []),
        ("modules over 500 lines", len(product.long_modules), 4, product.long_modules),
        ("p90 of a function's body, lines", body_lines[int(0.9 * len(body_lines))], 25, []),
        ("longest body, lines", body_lines[-1], 64, long_functions),
        list_share("public module functions of one word, %", public_names, select_short_names(public_names), 25),
        list_share("private module functions of one word, %", private_names, select_short_names(private_names), 35),
        list_share(
            "functions that begin with a filler verb, %",
            names,
            [name for name in names if name.strip("_").startswith(FILLER_VERBS)],
            3,
        ),
        list_share(
            "functions that begin with a participle, %",
            names,
            [name for name in names if is_participle("".join(split_words(name)[:1]))],
            2,
        ),
        (
            "locals that are a participle or a filler, %",
            100 * sum(bad_locals.values()) / product.stored_names.total(),
            2,
            list(bad_locals),
        ),
        list_share("classes of one word, %", product.classes, short_classes, 30),
        list_count("classes that are a participle", [name for name in short_classes if is_participle(name)], 0),
        list_count("class names of several modules", [name for name, count in class_counts.items() if count > 1], 5),
        list_count("modules named with a participle or small word", bad_modules, 0),
        list_count("module functions of at most 3 lines used once", small_functions, 150),
    ]


def list_share(title: str, names: list[str], bad_names: list[str], limit: float) -> tuple[str, float, float, list[str]]:
    """Return the row of a share in percent."""
    return title, 100 * len(bad_names) / len(names), limit, bad_names


def list_count(title: str, bad_names: list[str], limit: float) -> tuple[str, float, float, list[str]]:
    """Return the row of a number of names."""
    return title, len(bad_names), limit, bad_names


def select_short_names(names: list[str]) -> list[str]:
    """Return the names of one word."""
    return [name for name in names if len(split_words(name)) == 1]


def split_words(name: str) -> list[str]:
    """Return the words of a name in snake or camel case."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|[A-Z]", name.strip("_"))]


def is_participle(word: str) -> bool:
    """Return whether a word is a past participle, or has the end of one."""
    word = word.strip("_").lower()
    ends = len(word) > len("need") and word.endswith("ed") and not word.endswith("eed")
    return word in IRREGULAR_WORDS.split() or (ends and word not in NO_PARTICIPLES.split())


def is_property(node: Function) -> bool:
    """Return whether a method reads as a noun."""
    return bool({ast.unparse(decorator) for decorator in node.decorator_list} & {"property", "cached_property"})


def count_body_lines(node: Function) -> int:
    """Return the lines of a function's body, without its docstring."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def main() -> None:
    """Print each figure next to its limit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--names", action="store_true", help="list the names that count against a limit")
    show_names = parser.parse_args().names
    command = ["git", "ls-files", "*.py"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    for title, value, limit, names in list_rows(path for path in map(Path, listed) if path.exists()):
        holds = value >= -limit if limit < 0 else value <= limit
        print(f"{title:46} {value:>9,.1f}  {'at least' if limit < 0 else 'at most'} {abs(limit):>7,}  "
              f"{'ok' if holds else 'MISSED'}")  # fmt: skip
        if show_names:
            print("".join(f"    {name}\n" for name in sorted(names)), end="")


if __name__ == "__main__":
    main()
