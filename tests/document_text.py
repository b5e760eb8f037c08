"""The pages for readers, and what they put in code type: blocks, spans, commands."""

from __future__ import annotations

import itertools
import re
import shlex
from functools import cache
from pathlib import Path

from tracked_files import list_tracked

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    # templates
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "pages"),
]
# History keeps the words of its day; its links and paths must lead somewhere all the same.
CURRENT = [
    path for path in DOCUMENTS if path.name != "CHANGELOG.md" and path.parent.name != "decisions"
]
PROGRAMS = ("tandem", "make", "aws", "kubectl", "npx", "python", "pytest")
BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```", flags=re.DOTALL | re.MULTILINE)


def name_page(path: Path) -> str:
    """Return the path of a page below the repository."""
    return str(path.relative_to(ROOT))


def list_blocks(path: Path, *languages: str) -> list[str]:
    """Return the blocks of code in these languages; "" stands for a block of a shell."""
    return [
        block["text"]
        for block in BLOCK.finditer(path.read_text())
        if block["language"] in languages
    ]


def list_spans(path: Path) -> list[str]:
    """Return what stands in code type outside of blocks."""
    prose = BLOCK.sub("", path.read_text())
    return [span.replace("\\|", "|") for span in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", prose)]


def list_block_commands(path: Path) -> list[tuple[str, ...]]:
    """Return the words of each command in the blocks of a page: each is whole, unless `...` says
    otherwise."""
    lines = [
        line for text in list_blocks(path, "") for line in text.replace(" \\\n", " ").splitlines()
    ]
    text_lines = [line for line in lines if "-->" not in line]
    return [words for line in text_lines for words in split_line(line) if is_command(words)]


def list_span_commands(path: Path) -> list[tuple[str, ...]]:
    """Return the words of each command that the text of a page names, with some of its flags or
    none."""
    return [words for span in list_spans(path) for words in split_line(span) if is_command(words)]


def is_command(words: tuple[str, ...]) -> bool:
    """Return whether these are a program's name and at least one word for it."""
    return len(words) > 1 and words[0] in PROGRAMS


def split_line(line: str) -> list[tuple[str, ...]]:
    """Return the commands of one line of a shell, without redirections; what no shell could read is
    no command."""
    line = re.split(r"(?:^|\s)#\s", line.removeprefix("$ "))[0]
    inner = re.findall(r"\$\(([^()]*)\)", line)
    outer = re.sub(r"\$\([^()]*\)", "VALUE", line)
    commands: list[tuple[str, ...]] = []
    for text in (outer, *inner):
        lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;")
        lexer.whitespace_split = True
        try:
            words = list(lexer)
        except ValueError:  # prose with an apostrophe
            continue
        commands += split_words(words)
    return commands


def split_words(words: list[str]) -> list[tuple[str, ...]]:
    """Return the commands between `|`, `&&` and `;`, without variables before and files after
    them."""
    commands = [[]]
    for word in words:
        if set(word) <= set("|&;"):
            commands.append([])
        elif commands[-1] or not re.match(r"[A-Z_]+=", word):
            commands[-1].append(word.removeprefix(".venv/bin/"))
    return [tuple(itertools.takewhile(is_no_redirection, command)) for command in commands]


def is_no_redirection(word: str) -> bool:
    """Return whether a word of a shell is none of `>`, `2>file` and the like; `<name>` stands for a
    value."""
    return not re.match(r"\d?[<>]", word) or re.fullmatch(r"<[\w ]+>", word) is not None


@cache
def list_committed() -> frozenset[str]:
    """Return each committed file and each folder of one."""
    files = set(list_tracked())
    return frozenset(files | {str(parent) for name in files for parent in Path(name).parents})
