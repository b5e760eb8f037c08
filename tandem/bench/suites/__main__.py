"""`python -m tandem.bench.suites real`: show a suite's prompts, without sending them.

Invariant: the program prints only the result of `load_suite`; an invalid suite ends with code 2 and
its faults.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tandem.bench.suites.file_options import FileOptions
from tandem.bench.suites.suite import Suite, load_suite
from tandem.errors import TandemError

MAX_CHARACTERS = 60  # shown characters of a prompt


def main(argv: Sequence[str] | None = None) -> int:
    """Print a suite's prompts in order, then its counts, hash and notes; return the exit code."""
    description = "Show a suite's prompts: id, class, characters, first words."
    parser = argparse.ArgumentParser(prog="python -m tandem.bench.suites", description=description)
    parser.add_argument("suite", help="post, real, or a FILE of prompts")
    help_text = "a checkout of ray-project/llmperf, for its text in post"
    parser.add_argument("--llmperf-source", type=Path, metavar="DIR", help=help_text)
    parser.add_argument("--prompt-column", metavar="NAME", help="column or key of the prompts")
    parser.add_argument("--class-field", metavar="NAME", help="column or key of the classes")
    parser.add_argument("--turns", type=int, metavar="N", help="turns of the user to send")
    parser.add_argument("--sample", type=int, metavar="N", help="draw N prompts")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the draw")
    options = parser.parse_args(argv)
    form = FileOptions(
        prompt_column=options.prompt_column,
        class_field=options.class_field,
        turns=options.turns,
        sample=options.sample,
        seed=options.seed,
    )
    try:
        suite = load_suite(options.suite, llmperf_source=options.llmperf_source, options=form)
    except TandemError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    try:
        sys.stdout.write("\n".join(list_lines(suite)) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def list_lines(suite: Suite) -> Iterator[str]:
    """Yield a line for each prompt, then the suite's counts, hash and notes."""
    id_width = max(len(prompt.id) for prompt in suite.prompts)
    class_width = max(map(len, suite.classes))
    for prompt in suite.prompts:
        start = " ".join(prompt.as_text()[: 2 * MAX_CHARACTERS].split())[:MAX_CHARACTERS]
        names = f"{prompt.id:{id_width}}  {prompt.class_:{class_width}}"
        yield f"{names}  {prompt.characters:5}  {start}"
    yield ""
    counts = f"{len(suite.prompts)} prompts in {len(suite.classes)} classes"
    yield f"{suite.name}: {counts}, sha256 {suite.sha256}"
    for note in suite.notes:
        yield f"note: {note}"


if __name__ == "__main__":
    sys.exit(main())
