"""The driver: every server is called at the same moment, and however a call ends, one line says so.

The tool and Ray are stand-ins here: programs that take the same command line and leave the same
files.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from measured import arm

from tandem.bench.llmperf import run
from tandem.bench.llmperf import tool as tools
from tandem.bench.llmperf.__main__ import main
from tandem.bench.llmperf.run import LlmperfSession, read_calls
from tandem.bench.llmperf.tool import LlmperfLoad, LlmperfTool
from tandem.bench.records import manifest
from tandem.bench.records.record import read_records
from tandem.errors import ExternalError

# what it does stands in its server's address; it writes what it was told beside its results
STAND_IN = """
import json, os, sys, time
from pathlib import Path
told = dict(zip(sys.argv[1::2], sys.argv[2::2]))
address, out = os.environ["OPENAI_API_BASE"], Path(told["--results-dir"])
out.mkdir(parents=True, exist_ok=True)
kept = {name: os.environ.get(name) for name in KEPT}
(out / "told.json").write_text(json.dumps({"told": told, "env": kept, "cwd": os.getcwd()}))
print("[2026-11-21 17:00:00,000 W 1 1] a line of Ray's")
if "crash" in address:
    raise KeyError("error_code")
if "meet" in address:
    other = {"meet-a": "meet-b", "meet-b": "meet-a"}[out.parent.name]
    (out / "met").touch()
    for _ in range(2000):
        if (out.parent.parent / other / out.name / "met").exists():
            break
        time.sleep(0.01)
    else:
        raise TimeoutError(other)
if "hang" in address:
    time.sleep(600)
if "nothing" not in address:
    row = {"error_code": None, "error_msg": "", "ttft_s": 0.1, "end_to_end_latency_s": 1.0,
           "inter_token_latency_s": 0.04, "number_output_tokens": 9, "number_input_tokens": 64}
    rows = [row] * int(told["--max-num-completed-requests"])
    (out / "m_individual_responses.json").write_text(json.dumps(rows))
    (out / "m_summary.json").write_text("{}")
"""
KEPT = [
    "PYTHONPATH",
    "HF_HUB_OFFLINE",
    "TRANSFORMERS_OFFLINE",
    "RAY_AUTH_MODE",
    "RAY_ADDRESS",
    "OPENAI_API_KEY",
]
LOAD = LlmperfLoad(requests=3, timeout_s=5, seed=7)
# of a Ray for this machine alone, which tells nobody of it
RAY_WORDS = (
    r"start --head --block --port \d+ --node-ip-address 127\.0\.0\.1 --include-dashboard false"
    r" --disable-usage-stats --dashboard-agent-listen-port 0 --num-cpus 8 --num-gpus 0"
    r" --object-store-memory 100000000 --temp-dir \S+\n"
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Look often for what a stand-in has done."""
    for module in (run, tools):
        monkeypatch.setattr(module, "POLL_S", 0.01)


@pytest.fixture
def tool(tmp_path):
    source = tmp_path / "source"
    home = tmp_path / "home"
    programs = tmp_path / "bin"
    for folder in (source, home / "hf-internal-testing/llama-tokenizer", programs):
        folder.mkdir(parents=True)
    (source / "token_benchmark_ray.py").write_text(f"KEPT = {KEPT}\n{STAND_IN}")
    (home / "hf-internal-testing/llama-tokenizer/tokenizer.json").write_text("{}")
    program(programs / "python", f'exec {sys.executable} "$@"')
    program(
        programs / "ray",
        'echo "$@" > "$(dirname "$0")/ray.told"; echo "Ray runtime started."; exec sleep 600',
    )
    return LlmperfTool(source=source, python=programs / "python", home=home)


def program(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def act(tool, tmp_path):
    """Call the stand-in once or more against servers of these names."""

    def do(*names, calls=1, load=LOAD):
        lines = []
        arms = [
            arm(
                name,
                url=f"http://{name}.invalid:8000/v1/",
                role="variant" if place else "baseline",
                simulated=None,
            )
            for place, name in enumerate(names)
        ]
        out = tmp_path / "out"
        made_calls = LlmperfSession(arms=arms, load=load, tool=tool, out=out, say=lines.append).run(
            calls
        )
        return SimpleNamespace(calls=made_calls, out=out, said=lines)

    return do


def told(out, arm):
    return json.loads((out / "raw" / arm / "0/told.json").read_text())


def test_each_server_is_called_with_the_same_words(act):
    done = act("base", "spec")
    words = [told(done.out, arm)["told"] for arm in ("base", "spec")]

    assert [word.pop("--results-dir") for word in words] == [
        str(done.out / f"raw/{arm}/0") for arm in ("base", "spec")
    ]
    assert words[0] == words[1]
    assert words[0] == {
        "--model": "m",
        "--mean-input-tokens": "64",
        "--stddev-input-tokens": "0",
        "--mean-output-tokens": "600",
        "--stddev-output-tokens": "0",
        "--max-num-completed-requests": "3",
        "--num-concurrent-requests": "4",
        "--timeout": "5",
        "--llm-api": "openai",
        "--additional-sampling-params": '{"temperature": 0.0, "seed": 7}',
    }


def test_all_servers_are_called_at_the_same_moment(act):
    """Each ends well only if it sees the other one while it runs."""
    done = act("meet-a", "meet-b")
    assert [call.how for call in done.calls] == ["done", "done"]


def test_the_tool_is_kept_offline_and_on_its_own_ray(act, tool):
    seen = told(act("base", "spec").out, "base")

    assert seen["env"].pop("RAY_ADDRESS").startswith("127.0.0.1:")
    assert seen["env"] == {
        "PYTHONPATH": str(tool.source / "src"),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "RAY_AUTH_MODE": "disabled",
        "OPENAI_API_KEY": "none",
    }
    assert seen["cwd"] == str(tool.home)
    assert re.fullmatch(RAY_WORDS, (tool.python.parent / "ray.told").read_text())


def test_variables_of_our_own_python_do_not_reach_the_tool(act, monkeypatch):
    monkeypatch.setenv("PYTHONHOME", "/elsewhere")
    assert act("base").calls[0].how == "done"


def test_calls_that_did_well_leave_their_files_records_and_manifest(act):
    done = act("base", "spec", calls=2)

    records = list(read_records(done.out / "records.jsonl"))
    run_manifest = manifest.read_manifest(done.out)
    assert {(record.arm, record.round) for record in records} == set(
        itertools.product(("base", "spec"), (0, 1))
    )
    assert len(records) == 12
    assert {call.how for call in done.calls} == {"done"}
    assert (done.out / "raw/spec/1/m_individual_responses.json").exists()
    assert (run_manifest.generator, run_manifest.schedule) == ("llmperf", "simultaneous")
    assert run_manifest.version.startswith("f1d6bed")
    assert [(arm.name, arm.role) for arm in run_manifest.arms] == [
        ("base", "baseline"),
        ("spec", "variant"),
    ]
    assert run_manifest.ended.reason == "done"


@pytest.mark.parametrize(
    ("name", "how", "code", "detail"),
    [("crash", "crashed", 1, "KeyError: 'error_code'"), ("nothing", "no_result", 0, "")],
    ids=["crash", "no file"],
)
def test_a_call_without_results_leaves_the_second_one(act, name, how, code, detail):
    done = act(name, "base")
    failed, good = done.calls

    assert read_calls(done.out) == done.calls
    assert (failed.how, failed.exit_code, failed.counted, failed.asked) == (how, code, 0, 3)
    assert detail in failed.detail
    assert "a line of Ray's" not in failed.detail
    assert (good.how, good.counted) == ("done", 3)
    assert "call 0: 3 requests at concurrency 4 to each of 2 servers" in done.said
    assert f"{name}: {how}, 0 of 3 counted" in "".join(done.said)


def test_a_call_that_hangs_is_ended(act, monkeypatch):
    monkeypatch.setattr(run, "START_TIMEOUT_S", 0.0)
    monkeypatch.setattr(run, "REQUEST_LIMIT_S", 0.0)
    (call,) = act("hang", load=LlmperfLoad(timeout_s=1)).calls
    assert (call.how, call.exit_code, call.counted) == ("timeout", None, 0)


def test_a_ray_that_does_not_start_is_explained(act, tool, tmp_path):
    program(tool.python.parent / "ray", "echo 'node timed out'; exit 1")
    with pytest.raises(ExternalError, match="Ray did not start: node timed out"):
        act("base")
    assert manifest.read_manifest(tmp_path / "out").ended.reason == "failed"


def test_ray_is_ended_with_all_that_it_started(act, tool, tmp_path):
    child = tmp_path / "child"
    program(
        tool.python.parent / "ray", f"sleep 600 & echo $! > {child}; echo Ray runtime started; wait"
    )

    assert act("base").calls[0].how == "done"

    status = Path(f"/proc/{child.read_text().strip()}/status")
    end_s = time.monotonic() + 10
    # the kernel takes a killed process down in its own time
    while is_running(status) and time.monotonic() < end_s:
        time.sleep(0.01)
    assert not is_running(status)


def test_ray_may_end_the_others_itself(act, tool, tmp_path):
    program(
        tool.python.parent / "ray",
        f"trap 'sleep 0.2; touch {tmp_path}/drained; exit' TERM; echo Ray runtime started;"
        " sleep 600 & wait",
    )
    act("base")
    assert (tmp_path / "drained").exists()


def is_running(status):
    try:
        return "Z (zombie)" not in status.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def arguments(tool, out, *more):
    return [
        "--server",
        "base=http://base.invalid",
        "--model",
        "m",
        "--out",
        str(out),
        "--requests",
        "2",
        "--source",
        str(tool.source),
        "--python",
        str(tool.python),
        "--home",
        str(tool.home),
        *more,
    ]


def test_the_command_runs_a_call_and_keeps_its_outcome(tool, tmp_path):
    more = ("--server", "nothing=http://nothing.invalid", "--defer")
    assert main(arguments(tool, tmp_path / "one")) == 0
    assert main(arguments(tool, tmp_path / "two", *more)) == 0
    assert len(list(read_records(tmp_path / "one" / "records.jsonl"))) == 2
    assert not (tmp_path / "one" / "outcome.json").exists()
    assert json.loads((tmp_path / "two" / "outcome.json").read_text()) == {"exit_code": 3}


@pytest.mark.parametrize("names", ["http://x", "=http://x", "a=x:8000", "a/b=http://x"])
def test_a_server_without_a_name_or_an_address_is_refused(tool, tmp_path, capsys, names):
    assert main(arguments(tool, tmp_path / "out", "--server", names)) == 2
    assert "is no server; say --server NAME=http://HOST:PORT" in capsys.readouterr().err
