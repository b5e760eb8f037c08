"""What a module imports, directly and through others, as its source says it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tandem.declarations.project_image import ROOT

OURS = "tandem"


@cache
def imported(path: Path) -> frozenset[str]:
    """Return every dotted name that a module imports anywhere, but for those that only a type
    checker reads, and for relative ones, which the endpoint's additions alone have."""
    return frozenset(find_imports(path))


def find_imports(path: Path) -> Iterator[str]:
    waiting = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) in {
            "TYPE_CHECKING",
            "typing.TYPE_CHECKING",
        }:
            waiting.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        waiting.extend(ast.iter_child_nodes(node))


def file_of(name: str, root: Path) -> str | None:
    """Return the file of the longest prefix of a dotted name that is a module of ours."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        stem = "/".join(parts[:length])
        for file in (f"{stem}.py", f"{stem}/__init__.py"):
            if (root / file).is_file():
                return file
    return None


def closure(modules: Iterable[str]) -> set[str]:
    """Return the files of `modules` and of all of ours that they import, the packages on the way
    included."""
    waiting = {file for name in modules if (file := file_of(name, ROOT))}
    result: set[str] = set()
    while waiting:
        file = waiting.pop()
        if file in result:
            continue
        result.add(file)
        names = [name for name in imported(ROOT / file) if name.split(".")[0] == OURS]
        waiting |= {item for item in (file_of(name, ROOT) for name in names) if item}
        waiting |= {
            f"{folder.as_posix()}/__init__.py"
            for folder in Path(file).parents
            if (ROOT / folder / "__init__.py").is_file() and folder != Path()
        }
    return result


def libraries(files: set[str], root: Path = ROOT) -> set[str]:
    """Return the top names of all that `files` import and that is not ours, the standard library
    included."""
    return {name.split(".")[0] for file in files for name in imported(root / file)} - {OURS}
