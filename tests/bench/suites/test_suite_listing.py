"""`python -m tandem.bench.suites`: a suite on the screen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tandem.bench.suites.__main__ import main
from tandem.bench.suites.suite import load_suite

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("name", "note"), [("post", "note: the sample's eighth case"), ("real", "")]
)
def test_it_shows_prompts_then_the_hash_and_what_is_missing(name, note, capsys):
    main([name])
    shown = capsys.readouterr().out.splitlines()
    suite = load_suite(name)

    assert [line.split()[0] for line in shown[: len(suite.prompts)]] == [
        prompt.id for prompt in suite.prompts
    ]
    assert suite.sha256 in shown[len(suite.prompts) + 1]
    assert shown[-1].startswith(note)


def test_a_reader_that_leaves_early_sees_no_traceback():
    program = f"{sys.executable} -m tandem.bench.suites real | head -n 1"
    done = subprocess.run(
        ["bash", "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""
