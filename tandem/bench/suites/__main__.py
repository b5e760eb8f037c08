"""`python -m tandem.bench.suites real`: show what a suite asks, without asking it.

Invariant: prints what `load_suite` returns and nothing else; a suite that cannot be used ends with code 2 and its
faults.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tandem.bench.suites.suite import Suite, SuiteError, load_suite

MAX_BEGINNING_CHARACTERS = 60  # characters of a prompt that are shown


def main(argv: Sequence[str] | None = None) -> int:
    """Print one suite and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tandem.bench.suites", description="Show a suite's prompts: id, class, characters, first words."
    )
    parser.add_argument("suite", help="post, real, or a file FILE.jsonl")
    parser.add_argument(
        "--llmperf-source", type=Path, metavar="DIR", help="a checkout of ray-project/llmperf, for its text in post"
    )
    options = parser.parse_args(argv)
    try:
        suite = load_suite(options.suite, llmperf_source=options.llmperf_source)
    except SuiteError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    try:
        sys.stdout.write("".join(f"{line}\n" for line in format_suite(suite)))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def format_suite(suite: Suite) -> Iterator[str]:
    """Yield the lines that show a suite: its prompts in order, then what holds for all of them."""
    id_width = max(len(prompt.id) for prompt in suite.prompts)
    class_width = max(len(name) for name in suite.classes)
    for prompt in suite.prompts:
        begin = " ".join(prompt.as_text()[: 2 * MAX_BEGINNING_CHARACTERS].split())[:MAX_BEGINNING_CHARACTERS]
        yield f"{prompt.id:{id_width}}  {prompt.class_:{class_width}}  {prompt.characters:5}  {begin}"
    yield ""
    yield f"{suite.name}: {len(suite.prompts)} prompts in {len(suite.classes)} classes, sha256 {suite.sha256}"
    yield from (f"note: {note}" for note in suite.notes)


if __name__ == "__main__":
    sys.exit(main())
