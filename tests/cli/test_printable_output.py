"""No command prints a control character that a run's files hold, and no page has one."""

from __future__ import annotations

import json
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from bucket_specs import folders

from tandem.cli.console import print_json
from tandem.cli.program import main

ROOT = Path(__file__).resolve().parents[2]
RUN = ROOT / "tests" / "monitoring" / "measured" / "run"
HOSTILE = "ev\x1b[2Jil\x9b31m\u202e"
LOG = (
    '{{"request_id": "{}", "accepted_s": 36185.9, "bursts": [[36186.1, 4], [36186.2, 4]], "status":'
    " 200}}\n"
)


def count_controls(text: str) -> dict[str, int]:
    """Return every control character but line ends, with how often it stands there."""
    signs = [
        sign
        for sign in text
        if unicodedata.category(sign) in {"Cc", "Cf", "Zl", "Zp"} and sign != "\n"
    ]
    return {f"U+{ord(sign):04X}": signs.count(sign) for sign in set(signs)}


@pytest.fixture
def hostile_run(tmp_path):
    """A copy of a run in which an arm and a class have another name."""
    folder = tmp_path / "run"
    shutil.copytree(RUN, folder)
    for file in folder.iterdir():
        text = file.read_text()
        for name in ("qwen-sd-vllm", "repeat"):
            text = text.replace(json.dumps(name), json.dumps(HOSTILE))
        file.write_text(text)
    folder.joinpath("log.jsonl").write_text(LOG.format("qwen-sd-vllm.r0.b0.0"))
    return folder


Words = Callable[[Path, Path], list[str]]
COMMANDS: dict[str, Words] = {
    "report": lambda folder, _: ["bench", "report", str(folder)],
    "report --json": lambda folder, _: ["bench", "report", str(folder), "--json"],
    "compare": lambda folder, _: ["bench", "compare", str(RUN), str(folder)],
    "publish": lambda folder, _: [
        "bench",
        "publish",
        str(folder),
        "--env",
        "post-us-east-2",
        *folders(ROOT),
    ],
}


@pytest.mark.usefixtures("no_page")
@pytest.mark.parametrize("name", COMMANDS)
def test_control_characters_of_names_are_not_printed(name, hostile_run, tmp_path, capsys):
    main(COMMANDS[name](hostile_run, tmp_path))
    output = capsys.readouterr()
    assert "ev" in output.out + output.err
    assert count_controls(output.out + output.err) == {}


def test_a_flag_with_control_characters_is_refused_without(capsys):
    assert main(["bench", "report", "x", f"--{HOSTILE}"]) == 2
    assert count_controls(capsys.readouterr().err) == {}


def test_json_keeps_what_it_escapes(capsys):
    value = {"a": HOSTILE + "\x7f\u2028\U000e0001 \u3000é\n"}
    print_json(value)
    out = capsys.readouterr().out
    assert (json.loads(out), count_controls(out)) == (value | {"exit_code": 0}, {})
