"""What readers are told leads somewhere: links, files, commands."""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tandem.cli.program import app
from tandem.errors import TandemError

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "pages"),  # templates
]
FOREIGN = {  # pages of other projects, named with theirs
    "docs/CONFIGURATION.md", "docs/getting-started/quickstart-online-serving.md", "docs/spec/v1/ocirepositories.md",
    "docs/tagging.md",
}  # fmt: skip
FOLDERS = "tandem|rehearsal|tests|docs|benchmarks|stacks|charts|lambdas|images|supply"


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(text: str) -> str:
    return "\n".join(re.findall(r"^```\w*\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE))


def prose(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def without_patches(path: Path) -> str:
    """A page without its patches, which make files and commands."""
    return re.sub(r"^```diff\n.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)


@cache
def anchors(path: Path) -> frozenset[str]:
    """The headings of a page, as GitHub turns them into anchors."""
    headings = re.findall(r"^#+ (.+)$", prose(path.read_text()), flags=re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings)


def leads(path: Path, link: str) -> bool:
    file, _, heading = link.partition("#")
    target = (path.parent / file).resolve() if file else path
    return target.exists() and (not heading or heading in anchors(target))


@cache
def committed() -> frozenset[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = {name for name in listed.split("\0") if name}
    return frozenset(files | {str(parent) for name in files for parent in Path(name).parents})


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_every_link_of_a_document_leads_to_a_page_and_a_heading(path: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", prose(path.read_text()))
    assert [link for link in links if "://" not in link and not leads(path, link)] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_every_file_that_a_document_names_is_committed(path: Path) -> None:
    files = set(re.findall(rf"(?<![\w./-])((?:{FOLDERS})/[\w/]+(?:\.\w+|(?=/)))", without_patches(path)))
    assert {file for file in files if file not in committed()} == set()


def test_every_page_that_a_program_names_is_there() -> None:
    listed = [
        name for name in committed() if re.match(r"(tandem|stacks|charts|lambdas|images)/.*\.(py|j2|yaml)$", name)
    ]
    named_pages = {
        (name, page)
        for name in listed
        for page in re.findall(r"(?<![\w./-])docs/[\w/-]+\.md", (ROOT / name).read_text())
        if (ROOT / name).is_file()
    }
    assert {place for place in named_pages if not (ROOT / place[1]).is_file() and place[1] not in FOREIGN} == set()


def commands(text: str) -> list[str]:
    """Every whole command of ours in a block of code: words in capitals stand for what a reader puts in."""
    lines = blocks(text).replace(" \\\n", " ").splitlines()
    said = [line.removeprefix("$ ").partition("  #")[0] for line in lines]
    return [line for line in said if re.match(r"tandem [a-z]", line) and "..." not in line and "-->" not in line]


CASES = [(path, line) for path in DOCUMENTS for line in commands(path.read_text())]


@pytest.mark.parametrize(("path", "line"), CASES, ids=[f"{named(path)}: {line}" for path, line in CASES])
def test_a_command_in_a_block_of_code_parses(path: Path, line: str) -> None:
    words = shlex.split(re.split(r" (?:\d?>|&&|\|\|?) ?", line.replace(" URL", " http://HOST:8000"))[0], comments=True)
    with contextlib.suppress(TandemError):  # --resume reads the run's folder
        assert app.parse_args(words[1:]), path


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_a_document_names_only_make_targets_that_exist(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    text = path.read_text()
    said = {*re.findall(r"`make ([a-z-]+)", text), *re.findall(r"^make ([a-z-]+)", blocks(text), flags=re.MULTILINE)}
    assert said <= targets


@cache
def offered() -> frozenset[str]:
    """Every command of the CLI, as its help has it."""
    said = subprocess.run(
        [sys.executable, "-m", "tandem", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout  # fmt: skip
    return frozenset(re.findall(r"^│ ([a-z]+)  ", said, flags=re.MULTILINE))


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_a_document_names_only_commands_that_exist(path: Path) -> None:
    assert set(re.findall(r"`tandem ([a-z]+)", without_patches(path))) <= offered()


def test_the_glossary_has_each_term_once_in_order() -> None:
    terms = re.findall(r"^\| (.+?) \| .+\|$", (ROOT / "docs/glossary.md").read_text(), flags=re.MULTILINE)[1:]
    assert terms == sorted({term.casefold(): term for term in terms}.values(), key=str.casefold)


PAGES = sorted((ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_a_page_has_one_job_and_at_most_300_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 300


def test_the_index_leads_to_every_page_and_reference() -> None:
    index = (ROOT / "docs/README.md").read_text()
    names = [named(path).removeprefix("docs/") for path in (*PAGES, *(ROOT / "docs/reference").glob("*.md"))]
    assert [name for name in names if name != "README.md" and f"]({name}" not in index] == []


def test_the_site_leads_to_every_page_and_reference() -> None:
    places = re.findall(r": (\S+\.md)$", (ROOT / "supply/site/mkdocs.yml").read_text(), flags=re.MULTILINE)
    pages = [*PAGES, *(ROOT / "docs/reference").glob("*.md"), ROOT / "docs/decisions/README.md"]
    assert sorted(places) == sorted(named(path).removeprefix("docs/") for path in pages)


@pytest.mark.parametrize("page", ["docs/README.md", "README.md", "docs/architecture.md"])
def test_readers_are_led_to_the_glossary(page: str) -> None:
    assert "glossary.md)" in (ROOT / page).read_text()
