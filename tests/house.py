"""How much there is to read, and how it reads: sizes, air and names against their limits.

    python tests/house.py [--names]

Size is counted in nodes of the syntax tree, without docstrings: neither packing nor unpacking a
line changes it. The figures are no goal in themselves. Code that is moved out of the measured
folders, a name that only dodges a pattern, an expression that hides a loop: each is a defect.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tracked_files import list_tracked

ROOT = Path(__file__).parent.parent
NOT_PRODUCT = {"tests", "benchmarks", "rehearsal", "docs"}
LONG_MODULE = 500  # lines
SMALL_MODULE = 40  # lines; a smaller one needs no test of its own
# what tests reach through a command, a declaration or a template
FRONT_DOOR = ("tandem/cli", "tandem/rules", "stacks", "charts")

# what may not grow; docs/decisions/0062 has the goals, which are lower
MOST_PRODUCT_NODES = 334_000
MOST_BENCHMARK_NODES = 30_000
MOST_TEST_NODES = 345_000
MOST_NODES_A_LINE = 5.5

FILLER_VERBS = ("get_", "do_", "make_", "process_", "handle_", "perform_")
FILLER_LOCALS = {"one", "each", "whole", "it", "other"}
NOUN_LOCALS = {"expected", "seen", "left"}
IRREGULAR_PARTICIPLE = re.compile(
    "told|said|found|held|left|had|seen|known|sent|begun|made|drawn|spoken|shown|given|taken|kept"
    "|met|built|bought|lost|written|hidden|chosen|understood|brought|gone|won"
)
NO_PARTICIPLE = re.compile("embed|speed|feed|need|seed|bed|shared|unread|red")
SMALL_WORD = re.compile(
    "because|beside|between|behind|itself|of|from|with|whole|only|others?|each|one|every|again"
    "|apart|above|below|before|after|while|until|since|though|worth|form|words|course"
)

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


@dataclass(frozen=True)
class Figure:
    """One figure and its limit."""

    label: str
    value: float
    limit: float
    form: str = "{:,.0f}"
    is_minimum: bool = False

    @property
    def holds(self) -> bool:
        return self.value >= self.limit if self.is_minimum else self.value <= self.limit

    def __str__(self) -> str:
        value = self.form.format(self.value)
        limit = self.form.format(self.limit)
        return f"{self.label:48}{value:>9}   limit {limit:>8}   {'ok' if self.holds else 'over'}"


@dataclass(frozen=True)
class Definition:
    """A function or a class with its size in nodes and its module."""

    name: str
    nodes: int
    path: Path

    @property
    def words(self) -> list[str]:
        return split_words(self.name)

    def __str__(self) -> str:
        return f"{self.path}:{self.name} {self.nodes}"


@dataclass
class Sources:
    """What some modules hold, summed."""

    nodes: int = 0
    code_lines: int = 0
    docstring_lines: int = 0
    format_exceptions: int = 0
    assignments: int = 0
    packed_assignments: int = 0
    nested_comprehensions: int = 0
    lines: dict[Path, int] = field(default_factory=dict)
    bodies: list[Definition] = field(default_factory=list)  # of every function
    functions: list[Definition] = field(default_factory=list)  # neither property nor dunder
    module_functions: list[Definition] = field(default_factory=list)
    classes: list[Definition] = field(default_factory=list)
    locals: Counter[str] = field(default_factory=Counter)

    def list_bad_locals(self) -> Counter[str]:
        return Counter({name: count for name, count in self.locals.items() if is_bad_local(name)})


def read_sources(paths: list[Path]) -> Sources:
    """Read modules, as paths below the root."""
    sources = Sources()
    for path in paths:
        text = (ROOT / path).read_text()
        tree = ast.parse(text)
        nodes = list(ast.walk(tree))
        sources.lines[path] = len(text.splitlines())
        sources.nodes += count_nodes(tree)
        sources.format_exceptions += len(re.findall(r"# *fmt: *(?:skip|off)", text))
        _add_lines(sources, text, nodes)
        _add_definitions(sources, tree, nodes, path)
        for node in nodes:
            _add_statement(sources, node)
            _add_local(sources, node)
    return sources


def _add_lines(sources: Sources, text: str, nodes: list[ast.AST]) -> None:
    docstring_lines: set[int] = set()
    for node in nodes:
        docstring = find_docstring(node)
        if docstring is not None:
            docstring_lines.update(range(docstring.lineno, (docstring.end_lineno or 0) + 1))

    code_lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            code_lines.update(range(token.start[0], token.end[0] + 1))

    sources.docstring_lines += len(docstring_lines)
    sources.code_lines += len(code_lines - docstring_lines)


def _add_definitions(sources: Sources, tree: ast.Module, nodes: list[ast.AST], path: Path) -> None:
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            sources.classes.append(Definition(node.name, count_nodes(node), path))
        if not isinstance(node, FUNCTIONS):
            continue
        definition = Definition(node.name, sum(map(count_nodes, node.body)), path)
        sources.bodies.append(definition)
        if node in tree.body:
            sources.module_functions.append(definition)
        decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
        if not node.name.startswith("__") and not decorators & {"property", "cached_property"}:
            sources.functions.append(definition)


def _add_statement(sources: Sources, node: ast.AST) -> None:
    if isinstance(node, ast.Assign):
        sources.assignments += 1
        is_packed = isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)
        sources.packed_assignments += is_packed
    elif isinstance(node, ast.AnnAssign):
        sources.assignments += 1
    elif isinstance(node, COMPREHENSIONS):
        comprehensions = [part for part in ast.walk(node) if isinstance(part, COMPREHENSIONS)]
        sources.nested_comprehensions += len(comprehensions) > 1 or len(node.generators) > 1


def _add_local(sources: Sources, node: ast.AST) -> None:
    if isinstance(node, ast.arg):
        sources.locals[node.arg] += 1
    elif isinstance(node, ast.Name):
        sources.locals[node.id] += isinstance(node.ctx, ast.Store)


def find_docstring(node: ast.AST) -> ast.Expr | None:
    if not isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)) or not node.body:
        return None
    first = node.body[0]
    is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    if is_text and isinstance(first.value.value, str):
        return first
    return None


def count_nodes(node: ast.AST) -> int:
    """Count the nodes of a tree without docstrings, loads and stores."""
    docstring = find_docstring(node)
    count = 1
    for child in ast.iter_child_nodes(node):
        if child is not docstring and not isinstance(child, ast.expr_context):
            count += count_nodes(child)
    return count


def split_words(name: str) -> list[str]:
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|[A-Z]", name.strip("_"))
    return [word.lower() for word in words]


def is_participle(word: str) -> bool:
    word = word.strip("_").lower()
    if IRREGULAR_PARTICIPLE.fullmatch(word):
        return True
    has_ending = len(word) > 4 and word.endswith("ed") and not word.endswith("eed")
    return has_ending and not NO_PARTICIPLE.fullmatch(word)


def is_bad_local(name: str) -> bool:
    return name in FILLER_LOCALS or (is_participle(name) and name not in NOUN_LOCALS)


def is_bad_module(path: Path) -> bool:
    words = path.stem.strip("_").split("_")
    is_dunder = path.stem.startswith("__")
    return not is_dunder and any(
        SMALL_WORD.fullmatch(word) or is_participle(word) for word in words
    )


def list_modules() -> list[Path]:
    """List the committed modules, as paths below the root."""
    return [Path(name) for name in list_tracked("*.py")]


def list_used_modules(text: str) -> set[str]:
    """List the modules, by dotted name, from which a test uses something that it imports."""
    tree = ast.parse(text)
    modules: dict[str, set[str]] = {}
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                local_name = (alias.asname or alias.name).split(".")[0]
                modules.setdefault(local_name, set()).add(alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                sources = {node.module, f"{node.module}.{alias.name}"}
                modules.setdefault(alias.asname or alias.name, set()).update(sources)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            names.add(node.id)
    return set().union(*(modules.get(name, set()) for name in names))


def compute_tested_share(product: Sources, paths: list[Path]) -> float:
    """Compute how many modules a test of their room uses, in percent.

    The room of tandem/judge/equality/divergence.py is tests/judge/equality and the folders above
    and below it, without tests/ itself.
    """
    used_modules = {
        path: list_used_modules((ROOT / path).read_text())
        for path in paths
        if path.parts[0] == "tests" and path.name.startswith("test_") and len(path.parts) > 2
    }
    modules = [
        path
        for path, lines in product.lines.items()
        if lines >= SMALL_MODULE
        and not path.stem.startswith("__")
        and not str(path).startswith(FRONT_DOOR)
    ]

    tested = 0
    for module in modules:
        parts = module.with_suffix("").parts
        folders = parts[1:-1] if parts[0] == "tandem" else parts[:-1]
        room = Path("tests", *folders)
        name = ".".join(parts)
        users = [path for path, names in used_modules.items() if name in names]
        tested += any(room in path.parents or path.parent in room.parents for path in users)
    return percent(tested, len(modules))


def percent(part: float, whole: float) -> float:
    return 100 * part / whole if whole else 0.0


def measure_house() -> tuple[list[Figure], dict[str, list[str]]]:
    """Measure all committed modules: the figures, and by title what misses a rule."""
    paths = list_modules()
    product = read_sources([path for path in paths if path.parts[0] not in NOT_PRODUCT])
    rehearsal, benchmarks, tests = (
        read_sources([path for path in paths if path.parts[0] == folder])
        for folder in ("rehearsal", "benchmarks", "tests")
    )
    around = (rehearsal, benchmarks, tests)
    long_modules = [str(path) for path, lines in product.lines.items() if lines > LONG_MODULE]
    bad_modules = [str(path) for path in product.lines if is_bad_module(path)]
    participles = [name for name in product.functions if is_participle((name.words or [""])[0])]
    small_classes = [name for name in product.classes if len(name.words) == 1]
    class_counts = Counter(
        definition.name for definition in product.classes if not definition.name.startswith("_")
    )
    shared_classes = [name for name, count in class_counts.items() if count > 1]
    figures = [
        Figure("nodes of the product", product.nodes, MOST_PRODUCT_NODES),
        Figure("nodes of rehearsal", rehearsal.nodes, 60_000),
        Figure("nodes of benchmarks", benchmarks.nodes, MOST_BENCHMARK_NODES),
        Figure("nodes of tests", tests.nodes, MOST_TEST_NODES),
        *measure_air(product),
        Figure("tests: nodes a line of code", tests.nodes / tests.code_lines, 5.8, "{:.1f}"),
        Figure("tests: fmt: skip and off", sum(part.format_exceptions for part in around), 0),
        Figure(
            "docstring lines, % of code (at least)",
            percent(product.docstring_lines, product.code_lines),
            20,
            "{:.1f}",
            is_minimum=True,
        ),
        Figure("modules over 500 lines", len(long_modules), 8),
        *measure_names(product, participles, small_classes),
        measure_locals("locals", product, 1.5),
        measure_locals("tests: locals", tests, 2),
        Figure("public class names that several modules have", len(shared_classes), 3),
        Figure("modules named with a participle or small word", len(bad_modules), 0),
        Figure(
            "modules that a test of their room uses, %",
            compute_tested_share(product, paths),
            80,
            "{:.0f}",
            is_minimum=True,
        ),
    ]
    largest = sorted(product.bodies, key=lambda body: -body.nodes)[:40]
    lists = {
        "largest functions": [str(body) for body in largest],
        "functions that begin with a participle": [str(name) for name in participles],
        "classes of one word": [str(name) for name in small_classes],
        "class names that several modules have": sorted(shared_classes),
        "modules named with a participle or small word": bad_modules,
        "modules over 500 lines": long_modules,
        "locals": list_counts(product.list_bad_locals()),
        "locals of tests": list_counts(tests.list_bad_locals()),
    }
    return figures, lists


def measure_air(product: Sources) -> list[Figure]:
    sizes = sorted(body.nodes for body in product.bodies)
    packed = percent(product.packed_assignments, product.assignments)
    nested = 1000 * product.nested_comprehensions / product.code_lines
    return [
        Figure(
            "nodes a line of code", product.nodes / product.code_lines, MOST_NODES_A_LINE, "{:.1f}"
        ),
        Figure("fmt: skip and off", product.format_exceptions, 0),
        Figure("assignments that pack tuples, %", packed, 1, "{:.1f}"),
        Figure("nested comprehensions in 1,000 lines", nested, 1.5, "{:.1f}"),
        Figure("p90 of a function, nodes", sizes[int(0.9 * len(sizes))], 150),
        Figure("longest function, nodes", sizes[-1], 420),
    ]


def measure_names(
    product: Sources, participles: list[Definition], small_classes: list[Definition]
) -> list[Figure]:
    private = [name for name in product.module_functions if name.name.startswith("_")]
    public = [name for name in product.module_functions if not name.name.startswith("_")]
    fillers = [name for name in product.functions if name.name.strip("_").startswith(FILLER_VERBS)]
    shares = [
        ("public module functions of one word, %", list_small(public), public, 15),
        ("private module functions of one word, %", list_small(private), private, 15),
        ("functions that begin with a filler verb, %", fillers, product.functions, 3),
        ("functions that begin with a participle, %", participles, product.functions, 1),
        ("classes of one word, %", small_classes, product.classes, 15),
    ]
    figures = [
        Figure(label, percent(len(part), len(whole)), limit, "{:.1f}")
        for label, part, whole, limit in shares
    ]
    class_participles = [name for name in small_classes if is_participle(name.name)]
    return [*figures, Figure("classes that are a participle", len(class_participles), 0)]


def list_small(definitions: list[Definition]) -> list[Definition]:
    return [definition for definition in definitions if len(definition.words) == 1]


def measure_locals(label: str, sources: Sources, limit: float) -> Figure:
    share = percent(sources.list_bad_locals().total(), sources.locals.total())
    return Figure(f"{label}: participle or filler, %", share, limit, "{:.1f}")


def list_counts(counts: Counter[str]) -> list[str]:
    return [f"{name} {count}" for name, count in counts.most_common()]


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure how much there is to read.")
    parser.add_argument("--names", action="store_true", help="list what misses a rule")
    options = parser.parse_args()

    figures, lists = measure_house()
    for figure in figures:
        print(figure)
    if options.names:
        for title, lines in lists.items():
            print(f"\n{title}: {len(lines)}")
            for line in lines:
                print(f"  {line}")
    return 0 if all(figure.holds for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
