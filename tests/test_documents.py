"""What readers are told leads somewhere: links, headings, files and folders."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest
import yaml
from document_text import BLOCK, DOCUMENTS, ROOT, list_committed, list_spans, name_page

FOREIGN = {  # pages of other projects, named with theirs
    "docs/CONFIGURATION.md",
    "docs/getting-started/quickstart-online-serving.md",
    "docs/spec/v1/ocirepositories.md",
    "docs/tagging.md",
}
OF_A_RUN = {"charts/*.png"}  # in a run's folder, which has a name of this repository's
FOLDERS = "tandem|rehearsal|tests|docs|benchmarks|stacks|charts|lambdas|images|supply"


def without_patches(path: Path) -> str:
    """A page without its patches, which make files and commands."""
    return re.sub(r"^```diff\n.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)


@cache
def anchors(path: Path) -> frozenset[str]:
    """The headings of a page, as GitHub turns them into anchors."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", path.read_text()), flags=re.MULTILINE)
    return frozenset(
        re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings
    )


def leads(path: Path, link: str) -> bool:
    file, _, heading = link.partition("#")
    target = (path.parent / file).resolve() if file else path
    return target.exists() and (not heading or heading in anchors(target))


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_page)
def test_every_link_leads_to_a_page_and_heading(path):
    links = re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", path.read_text()))
    assert [link for link in links if "://" not in link and not leads(path, link)] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_page)
def test_every_file_that_a_document_names_is_committed(path):
    files = set(
        re.findall(rf"(?<![\w./-])((?:{FOLDERS})/[\w/]+(?:\.\w+|(?=/)))", without_patches(path))
    )
    assert {file for file in files if file not in list_committed()} == set()


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_page)
def test_a_path_in_code_type_fits_something_committed(path):
    """NAME, <name>, `...` and the reader's own `prod` stand for any name; a function follows :."""
    folders = "|".join(sorted({name.partition("/")[0] for name in list_committed() if "/" in name}))
    words = {word.strip(",;:'()") for span in list_spans(path) for word in span.split()}
    places = {word for word in words - OF_A_RUN if re.match(rf"(?:{folders})/", word)}
    patterns = {
        place: re.sub(r"<\w+>|\$?[A-Z]{2,}|\.\.\.|\bprod\b|(?<=\.py):\w+", "*", place.rstrip("/"))
        for place in places
    }
    assert {
        place
        for place in places
        if not any(fnmatch(name, patterns[place]) for name in list_committed())
    } == set()


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_page)
def test_a_function_that_follows_its_file_is_defined_there(path):
    pairs = re.findall(r"`([\w/]+\.py):(\w+)`", path.read_text())
    assert [
        name
        for file, name in pairs
        if not re.search(
            rf"^ *(?:(?:async )?def|class) {name}\b", (ROOT / file).read_text(), re.MULTILINE
        )
    ] == []


def test_every_page_that_a_program_names_is_there():
    names = [
        name
        for name in list_committed()
        if re.match(r"(tandem|stacks|charts|lambdas|images)/.*\.(py|j2|yaml)$", name)
    ]
    named_pages = {
        (name, page)
        for name in names
        for page in re.findall(r"(?<![\w./-])docs/[\w/-]+\.md", (ROOT / name).read_text())
        if (ROOT / name).is_file()
    }
    assert {
        place
        for place in named_pages
        if not (ROOT / place[1]).is_file() and place[1] not in FOREIGN
    } == set()


def test_the_glossary_has_each_term_once_in_order():
    terms = re.findall(
        r"^\| (.+?) \| .+\|$", (ROOT / "docs/glossary.md").read_text(), flags=re.MULTILINE
    )[1:]
    assert terms == sorted({term.casefold(): term for term in terms}.values(), key=str.casefold)


PAGES = sorted((ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("path", PAGES, ids=name_page)
def test_a_page_has_one_job_and_at_most_300_lines(path):
    assert len(path.read_text().splitlines()) <= 300


def test_the_index_leads_to_every_page_and_reference():
    index = (ROOT / "docs/README.md").read_text()
    names = [
        name_page(path).removeprefix("docs/")
        for path in (*PAGES, *(ROOT / "docs/reference").glob("*.md"))
    ]
    assert [name for name in names if name != "README.md" and f"]({name}" not in index] == []


def test_the_site_leads_to_every_page_and_reference():
    places = re.findall(
        r": (\S+\.md)$", (ROOT / "supply/site/mkdocs.yml").read_text(), flags=re.MULTILINE
    )
    pages = [*PAGES, *(ROOT / "docs/reference").glob("*.md"), ROOT / "docs/decisions/README.md"]
    assert sorted(places) == sorted(name_page(path).removeprefix("docs/") for path in pages)


def test_the_search_of_the_site_needs_no_server():
    settings = yaml.safe_load((ROOT / "supply/site/mkdocs.yml").read_text())
    scripts = settings["extra"]["polyfills"]

    assert "offline" in settings["plugins"]
    assert [
        script for script in scripts if not (ROOT / "supply/site/theme" / script).is_file()
    ] == []
    assert any("iframe-worker" in script for script in scripts), (
        "the plugin would add one of unpkg.com"
    )
