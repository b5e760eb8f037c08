"""`tandem runs` and `tandem results`: what somebody sees of runs that a runner left in the
bucket."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from run_records import (
    RUN,
    VERDICT,
    answering,
    fill_bucket,
    make_record,
    make_step,
    put_beat,
    put_run,
    put_value,
    read_request,
    tandem,
)
from test_run_client import put_events

from tandem.judge.schema import REPORT_FILE
from tandem.ops.people.rights import COMMANDS, list_command_calls
from tandem.run.jobs import name_job
from tandem.run.round_records import ROUND_FILES, VERDICT_TEXT
from tandem.run.run_keys import (
    JUDGMENT_FILE,
    ROUND_FILE,
    log_key,
    results_prefix,
    round_prefix,
    run_record_key,
)
from tandem.run.run_values import JudgmentResult, RoundResult

pytestmark = [pytest.mark.endpoint, pytest.mark.usefixtures("quick")]
ROOT = Path(__file__).parents[2]


def test_an_unreadable_run_hides_no_other(fleet, capsys):
    put_run(fleet, make_record(fleet, "good"))
    put_value(fleet, run_record_key("bad"), b"{")
    codes = [tandem(fleet, "runs"), tandem(fleet, "runs", "--json")]
    out = capsys.readouterr().out
    assert (codes, "good" in out, "unknown   bad: it cannot be parsed" in out) == (
        [3, 3],
        True,
        True,
    )


def test_show_says_where_awss_node_time_is_unknown(fleet, capsys):
    record = make_record(fleet, state="judged")
    lease = msgspec.structs.replace(record.leases[0], doubt="the node group is gone")
    put_run(fleet, msgspec.structs.replace(record, leases=(lease,)))
    tandem(fleet, f"runs show {RUN}")
    assert "which is too much at worst: the node group is gone" in " ".join(
        capsys.readouterr().out.split()
    )


def test_cancel_asks_and_writes_a_request_of_its_own(fleet, capsys):
    put_run(fleet, make_record(fleet))
    with answering(fleet):
        code = tandem(fleet, f"runs cancel {RUN}", "--yes")
    key, request = read_request(fleet)
    assert (code, request.kind, request.run, f"/{RUN}.cancel-" in key) == (0, "cancel", RUN, True)
    assert f"tandem runs follow {RUN} --env {fleet.name}" in capsys.readouterr().out


def put_logged_run(fleet):
    """A run whose two steps were at work a moment ago."""
    now = datetime.now(UTC)
    times = {"started_at": (now - timedelta(minutes=9)).isoformat(), "ended_at": now.isoformat()}
    put_run(
        fleet,
        make_record(fleet, state="failed"),
        (
            make_step(
                0, "stage", **{**times, "ended_at": (now - timedelta(minutes=8)).isoformat()}
            ),
            make_step(
                1,
                "compile",
                jobs=(name_job(RUN, "compile-x", 1),),
                **{**times, "started_at": (now - timedelta(minutes=5)).isoformat()},
            ),
        ),
    )
    return now


def test_logs_come_from_cloudwatch_where_it_has_them(fleet, capsys):
    now = put_logged_run(fleet)
    put_events(
        fleet,
        (f"{name_job(RUN, 'compile-x', 1)}-abcde", "compiling"),
        at=now - timedelta(minutes=2),
    )
    assert tandem(fleet, f"runs logs {RUN}") == 0
    out, err = capsys.readouterr()
    assert (out.splitlines()[0].endswith("-abcde  compiling"), err) == (
        True,
        "1 line, from CloudWatch\n",
    )


def test_a_step_without_jobs_has_no_log(fleet, capsys):
    now = put_logged_run(fleet)
    put_events(fleet, (f"{name_job(RUN, 'compile-x', 1)}-abcde", "compiling"), at=now)

    assert tandem(fleet, f"runs logs {RUN}", "--step", "stage") == 0

    err = capsys.readouterr().err
    assert "step stage ran no Job, so it has no log" in err
    assert "0 lines" in err


def test_logs_come_from_the_bucket_where_cloudwatch_has_none(fleet, capsys):
    put_logged_run(fleet)
    put_value(fleet, log_key(RUN, name_job(RUN, "compile-x", 1)), b"out of memory\n")
    assert tandem(fleet, f"runs logs {RUN}", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["source"], [line["text"] for line in document["lines"]]) == (
        "the tails that the runner kept",
        ["out of memory"],
    )


def put_results(fleet):
    """Two measured rounds of a recorded run, and what the judge made of them."""
    source = ROOT / "tests" / "monitoring" / "measured" / "run"
    prefix = results_prefix("post", RUN)
    for number, attempt in ((0, 1), (1, 2)):
        below = round_prefix("post", RUN, number, attempt)
        for name in (*ROUND_FILES, "manifest.json"):
            if (source / name).exists():
                put_value(fleet, below + name, (source / name).read_bytes())
            elif name != "manifest.json":
                put_value(fleet, below + name, b"")
        requests = (source / "records.jsonl").read_bytes().count(b"\n")
        result = RoundResult(
            number=number,
            attempt=attempt,
            requests=requests,
            failed=0,
            duration_s=1.0,
            is_simulated=True,
        )
        put_value(fleet, below + ROUND_FILE, result)
    put_value(fleet, prefix + VERDICT_TEXT, f"{VERDICT}\n".encode())
    judgment = JudgmentResult(sentence=VERDICT, is_void=False, exit_code=0)
    put_value(fleet, prefix + JUDGMENT_FILE, judgment)
    put_value(fleet, prefix + REPORT_FILE, b"<!doctype html>")
    steps = (
        make_step(0, "round-00000", result={"number": 0, "attempt": 1}),
        make_step(1, "round-00001", result={"number": 1, "attempt": 2}),
        make_step(2, "round-00002", "failed", result={"number": 2, "attempt": 3}),
        make_step(3, "judge"),
    )
    put_run(fleet, make_record(fleet, state="judged", verdict=VERDICT), steps)


def test_results_bring_the_folder_of_the_confirmed_rounds(fleet, tmp_path, capsys):
    put_results(fleet)
    out = tmp_path / "runs" / "mine"
    out.parent.mkdir()
    assert tandem(fleet, f"results {RUN}", "--out", str(out)) == 0
    assert f"tandem bench report {out}" in capsys.readouterr().out
    source = ROOT / "tests" / "monitoring" / "measured" / "run" / "records.jsonl"
    assert (out / "records.jsonl").read_bytes() == 2 * source.read_bytes()
    assert (out / VERDICT_TEXT).read_text() == f"{VERDICT}\n"


@pytest.mark.parametrize("command", ["results", "runs show"])
def test_a_judged_run_says_where_its_report_is(command, fleet, capsys):
    put_results(fleet)

    tandem(fleet, f"{command} {RUN}")

    url = f"s3://{fleet.guarded.bucket}/{results_prefix('post', RUN)}{REPORT_FILE}"
    assert f"  report    {url}" in capsys.readouterr().out


def test_a_downloaded_report_is_named_by_its_path(fleet, tmp_path, capsys):
    put_results(fleet)

    tandem(fleet, f"results {RUN}", "--out", str(tmp_path / "run"))

    path = tmp_path / "run" / REPORT_FILE
    assert path.read_bytes() == b"<!doctype html>"
    assert f"  report    {path}" in capsys.readouterr().out


@pytest.mark.proof
def test_results_of_a_run_without_a_verdict_say_why(fleet, capsys):
    put_run(fleet, make_record(fleet, state="ended", reason="the node never came"))
    assert tandem(fleet, f"results {RUN}") == 1
    assert capsys.readouterr().out.startswith("the node never came\n")


def list_calls(proxy):
    """Every operation that was asked of the proxy, as the API reference spells it."""
    return {
        row.operation.replace("ListObjects", "ListObjectsV2").replace("V2V2", "V2")
        for row in proxy.log
    }


@pytest.mark.proof
@pytest.mark.parametrize(
    "command",
    [
        f"runs logs {RUN}",
        f"results {RUN}",
        f"runs cancel {RUN} --yes",
    ],
)
def test_no_command_asks_more_than_its_rights_say(command, fleet, proxy):
    put_results(fleet)
    put_beat(fleet)
    fill_bucket(fleet)
    proxy.forget()
    with answering(fleet):
        code = tandem(fleet, command)
    need = next(
        need for need in sorted(COMMANDS, key=len, reverse=True) if command.startswith(need)
    )
    calls = {call.operation for call in list_command_calls(need)}
    assert (code, list_calls(proxy) - calls - {"GetCallerIdentity"}) == (0, set())
