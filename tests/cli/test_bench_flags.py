"""The flags of `tandem bench run`: what is refused, before anything is asked, with what is
allowed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from shipped import load_shipped

from tandem.cli import bench_flags
from tandem.cli.program import main

ROOT = Path(__file__).resolve().parents[2]
HOSTED = load_shipped().environments["post-us-east-2"].record.experiments
ARMS = ["--baseline", "http://127.0.0.1:9", "--model", "m"]


def run(tmp_path: Path, *flags: str) -> int:
    return main(["bench", "run", *flags, "--out", str(tmp_path / "out")])


def test_resume_and_out_were_both_given(tmp_path, capsys):
    folders = ["--resume", str(tmp_path / "a"), "--out", str(tmp_path / "b")]
    assert main(["bench", "run", *folders]) == 2
    assert "Given: --out and --resume" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--baseline", "127.0.0.1:8000"), "not a URL; allowed: http(s)://HOST:PORT"),
        (("--baseline", "a/b=http://127.0.0.1:9"), "name 'a/b'; allowed: up to 63 letters"),
        (
            ("--concurrency", "1", "--rate", "2"),
            "Mutually exclusive arguments: {--concurrency, --rate}",
        ),
        (
            ("--rounds", "1", "--duration", "1h"),
            "Mutually exclusive arguments: {--rounds, --duration}",
        ),
        (("--knee", "--rate", "2"), "Mutually exclusive arguments: {--rate, --knee}"),
        (("--goodput-share", "95"), "--goodput-share. Allowed: from 0.5 to 0.999"),
        (("--duration", "180"), "'180'; allowed: a number and s, m or h, as 180m"),
        (("--thinking", "maybe"), '"on", "off"'),
        (("--record", "tokens"), "'tokens'; allowed: token-ids, logprobs"),
        (("--warm-up", "until"), "'until'; allowed: auto, or a whole number"),
        (("--timeouts", "gap:0"), "'gap:0'; allowed: NAME:NUMBER as in "),
        (("--price", "-1"), "--price. Allowed: USD an hour, from 0.000001 to 1000000"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_bad_flag_ends_with_2_and_what_is_allowed(tmp_path, capsys, flags, said):
    assert run(tmp_path, *flags) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "no --baseline; allowed: servers by address, or --env and --experiment"),
        (
            (*ARMS, "--variant", "baseline=http://127.0.0.1:8"),
            "two arms are named 'baseline'; allowed: each name once",
        ),
        ((*ARMS, "--variants", "x"), "--variants without --env"),
        (("--experiment", "post"), "--experiment without --env"),
        ((*ARMS, "--env", "post-us-east-2"), "--baseline beside --env"),
        (("--env", "post-us-east-2"), f"no --experiment; allowed: {', '.join(HOSTED)}"),
        (("--env", "post-us-east-2", "--experiment", "pots"), "did you mean 'post'?"),
        (
            ("--env", "post-us-east-2", "--experiment", "post", "--variants", "x"),
            "post has no variant x",
        ),
        (
            (*ARMS, "--api-key-env", "TANDEM_NO_SUCH_KEY"),
            "the variable TANDEM_NO_SUCH_KEY is not set",
        ),
        ((*ARMS, "--knee"), "--knee without --goodput; allowed: both"),
        (
            (*ARMS, "--knee", "--goodput", "ttft_ms:9", "--repeats", "2"),
            "--repeats beside --knee; allowed: one of them",
        ),
        (
            (*ARMS, "--knee", "--goodput", "ttft_ms:9", "--restart", "x"),
            "--restart beside --knee; allowed: one of them",
        ),
        ((*ARMS, "--quick", "--full"), "Mutually exclusive arguments: {--"),
        ((*ARMS, "--dataset", "own.jsonl"), "Unknown option: --dataset. Did you mean --suite?"),
    ],
    ids=lambda value: " ".join(value[-2:]) if isinstance(value, tuple) else "",
)
def test_flags_that_contradict_each_other_give_2_and_advice(tmp_path, capsys, flags, said):
    code = run(tmp_path, *flags)
    assert (code, said in capsys.readouterr().err, (tmp_path / "out").exists()) == (2, True, False)


def test_two_suites_of_one_name_end_with_2(tmp_path, capsys):
    files = [tmp_path / name / "own.jsonl" for name in ("one", "other")]
    for file in files:
        file.parent.mkdir()
        file.write_text('{"id": "first", "class": "c", "prompt": "say"}\n')

    code = run(tmp_path, *ARMS, "--suite", *map(str, files))

    assert (code, "two suites are named own.jsonl" in capsys.readouterr().err) == (2, True)


def test_a_server_that_is_down_gives_3_and_no_folder(tmp_path, capsys):
    code = run(tmp_path, *ARMS)
    assert (code, (tmp_path / "out").exists()) == (3, False)
    assert "http://127.0.0.1:9" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("http://127.0.0.1:8000", (None, "http://127.0.0.1:8000")),
        ("sd=http://127.0.0.1:8000/v1", ("sd", "http://127.0.0.1:8000/v1")),
        ("https://host/path", (None, "https://host/path")),
    ],
)
def test_an_arm_is_a_url_and_may_have_a_name(text, read):
    assert bench_flags.parse_arm(text) == read


@pytest.mark.parametrize(
    ("text", "seconds"), [("180m", 10_800), ("3h", 10_800), ("90s", 90), ("1.5m", 90)]
)
def test_a_duration_has_a_unit(text, seconds):
    assert bench_flags.parse_duration(text) == seconds


def test_a_run_begins_without_scipy(tmp_path):
    code = (
        "import sys; from tandem.cli.program import main;"
        f" sys.exit(main({['bench', 'run', *ARMS, '--out', str(tmp_path / 'out')]}) != 3 or 'scipy'"
        " in sys.modules)"
    )

    assert (
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False
        ).returncode
        == 0
    )
