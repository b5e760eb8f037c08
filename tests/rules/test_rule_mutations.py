"""A mutation of the rules changes what a fixture is told: no rule, and no place where one speaks,
is without effect."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from examples import EXAMPLES, Vary
from known import judged, known
from test_judge import FURTHER

from tandem.declarations.catalogue import load_catalogue
from tandem.rules import RULES
from tandem.rules.rule import Rule

pytestmark = pytest.mark.proof

ROOT = Path(__file__).parent.parent.parent
JUDGE = importlib.import_module("tandem.rules.check")
CORPUS: dict[str, tuple[dict[str, Any], Vary | None]] = {
    **{name: (example.found, example.vary) for name, example in EXAMPLES.items()},
    **{name: (changes, None) for name, (changes, _) in FURTHER.items()},
}


def verdicts() -> dict[str, list[tuple[str | None, str]]]:
    """Return what each fixture is told."""
    return {
        name: [
            (fault.rule, fault.path)
            for fault in judged(changes, vary(known()) if vary else known())
        ]
        for name, (changes, vary) in CORPUS.items()
    }


BASELINE = cache(verdicts)


def modules() -> Iterator[ModuleType]:
    """Yield each module of rules."""
    for path in sorted((ROOT / "tandem" / "rules").glob("*.py")):
        module = importlib.import_module(f"tandem.rules.{path.stem}")
        if hasattr(module, "RULES") and path.stem not in {"__init__", "check", "doc"}:
            yield module


def tree_of(module: ModuleType) -> ast.Module:
    """Parse a module's source."""
    assert module.__file__ is not None
    return ast.parse(Path(module.__file__).read_text())


def speaking(tree: ast.AST) -> list[ast.Expr]:
    """Return the statements by which a rule tells a finding."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield | ast.YieldFrom)
    ]


PLACES = [
    (module, number, statement.lineno)
    for module in modules()
    for number, statement in enumerate(speaking(tree_of(module)))
]


class Silence(ast.NodeTransformer):
    """Replace one statement by one that yields nothing."""

    def __init__(self, statement: ast.Expr) -> None:
        self._statement = statement

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """Put `yield from ()` in the statement's place."""
        return (
            ast.copy_location(ast.parse("yield from ()").body[0], node)
            if node is self._statement
            else node
        )


def silenced(module: ModuleType, number: int) -> tuple[Rule, ...]:
    """Return the table after one statement of a module says nothing any more."""
    tree = tree_of(module)
    mutant_tree = ast.fix_missing_locations(Silence(speaking(tree)[number]).visit(tree))
    names = {**vars(module)}
    exec(compile(mutant_tree, str(module.__file__), "exec"), names)  # noqa: S102 - our own source, one statement less
    mutants = {rule.id: rule for rule in names["RULES"]}
    return tuple(
        replace(rule, find=mutants[rule.id].find) if rule.id in mutants else rule for rule in RULES
    )


PLACE_IDS = [f"{module.__name__.rpartition('.')[2]}:{line}" for module, _, line in PLACES]


@pytest.mark.parametrize(("module", "number", "line"), PLACES, ids=PLACE_IDS)
def test_a_silenced_statement_changes_what_a_fixture_is_told(module, number, line, monkeypatch):
    expected = BASELINE()
    monkeypatch.setattr(JUDGE, "RULES", silenced(module, number))
    assert verdicts() != expected, f"nothing reaches line {line}"


def test_proof_names_the_rules_that_todays_data_leave_silent():
    silent = [
        name
        for name, example in EXAMPLES.items()
        if name not in {fault.rule for fault in judged(example.found, load_catalogue())}
    ]
    page = (ROOT / "docs" / "proof.md").read_text()
    listing = page.partition("## Rules that no fixture reaches")[2].partition("\n## ")[0]

    assert sorted(re.findall(r"`([a-z-]+)`", listing)) == sorted(silent)
