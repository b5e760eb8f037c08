"""The recordings in tests/bench/streams are those that the script would make again."""

from __future__ import annotations

import json
import re

import pytest
from record_streams import CASES, OUT, shortened, trimmed


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_recording_holds_the_request_that_the_script_sends(case):
    head = json.loads((OUT / f"{case.name}.jsonl").read_text().splitlines()[0])
    assert head["request"]["body"] == shortened(case.body())
    assert head["server"]["arm"] == case.arm


def test_every_recording_has_its_case():
    assert {path.stem for path in OUT.glob("*.jsonl")} == {case.name for case in CASES}


@pytest.mark.parametrize("path", sorted(OUT.glob("*.json*")), ids=lambda path: path.name)
def test_a_recording_holds_no_path_of_the_machine_that_made_it(path):
    text = path.read_text()
    stream_bytes = b"".join(
        bytes.fromhex(piece) for piece in re.findall(r'"hex": "([0-9a-f]+)"', text)
    ).decode()
    assert set(re.findall(r'"(/\w[^"]*)"', text + stream_bytes)) <= {
        "/v1/chat/completions",
        "/v1/completions",
    }


def test_a_page_is_trimmed_to_the_servers_own_families():
    page = (
        "# HELP vllm:a A.\n# TYPE vllm:a counter\nvllm:a 1.0\n# HELP python_gc G.\npython_gc 2.0\n"
    )
    assert trimmed(page) == "# HELP vllm:a A.\n# TYPE vllm:a counter\nvllm:a 1.0\n"
