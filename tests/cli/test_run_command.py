"""`tandem run` as its user meets it; the test answers in place of the runner."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from types import SimpleNamespace

import pytest
from run_records import (
    RUN,
    STEPS,
    VERDICT,
    answering,
    compute_digest,
    fill_bucket,
    list_keys,
    make_record,
    make_request,
    make_step,
    put_beat,
    put_run,
    put_value,
    read_request,
    tandem,
)

from tandem.errors import ExternalError
from tandem.guard.fence import FENCE_KEY
from tandem.run.run_client import RunClient

pytestmark = [pytest.mark.endpoint, pytest.mark.usefixtures("quick")]
HOURS = ("--hours", "6")
ASK = (*HOURS, "--yes", "--run", RUN)
ENDED_STEPS = tuple(
    make_step(index, step, note=f"{step} is fine") for index, step in enumerate(STEPS)
)


@pytest.fixture
def ready(fleet, monkeypatch):
    """A fleet whose bucket has all, and whose runner lives."""
    # all of them are asked in test_run_rights.py
    monkeypatch.setattr("tandem.cli.run_draft.RUN_CHECKS", frozenset({"fleet", "subscriptions"}))
    fill_bucket(fleet)
    put_beat(fleet)
    return fleet


def finish(fleet, **fields):
    """What a runner leaves of a run that came to its end."""
    return lambda _: put_run(fleet, make_record(fleet, **fields), ENDED_STEPS)


def test_the_request_says_what_was_asked_and_of_which_specs(ready):
    flags = ("--quick", "--starts", "6", "--llmperf", "--accept-unarmed")
    with answering(ready, finish(ready, state="judged")):
        tandem(ready, "run post", *ASK, *flags)

    _, request = read_request(ready)
    expected = make_request(
        environment=ready.name,
        spec_digest=compute_digest(ready),
        at=request.at,
        size="quick",
        starts=6,
        rounds=6,
        llmperf=True,
        accept_unarmed=True,
    )
    assert request == expected


@pytest.mark.parametrize(
    ("state", "code", "step"),
    [
        ("void", 4, "runs show"),
        ("waiting", 1, "--resume"),
        ("failed", 3, "logs"),
    ],
)
def test_each_end_has_its_exit_code_reason_and_next_command(state, code, step, ready, capsys):
    with answering(ready, finish(ready, state=state, reason="because of it")):
        result = tandem(ready, "run post", *ASK)
    out = capsys.readouterr().out
    assert (result, f"  {state:<9} because of it" in out, step in out.splitlines()[-1]) == (
        code,
        True,
        True,
    )


def test_a_refusal_of_the_runner_gives_2_and_its_sentence(ready, capsys):
    with answering(ready, is_accepted=False, reason="run x is at work", change="ask again later"):
        code = tandem(ready, "run post", *ASK)
    err = capsys.readouterr().err
    assert (
        code,
        "error: the runner: run x is at work" in err,
        "change   ask again later" in err,
    ) == (2, True, True)


def test_a_bucket_that_is_away_ends_no_request(ready, monkeypatch):
    answers = iter([ExternalError("S3 is away", change="wait")])
    read = RunClient.read_answer

    def read_answer(client, key):
        for fault in answers:
            raise fault
        return read(client, key)

    monkeypatch.setattr(RunClient, "read_answer", read_answer)
    with answering(ready):
        assert tandem(ready, "run post", *ASK, "--detach") == 0


@pytest.mark.proof
def test_a_runner_that_says_nothing_gives_3(ready, capsys, monkeypatch):
    monkeypatch.setattr("tandem.cli.run.ANSWER_LIMIT", timedelta(seconds=0.05))
    code = tandem(ready, "run post", *ASK)
    err = capsys.readouterr().err
    assert (code, "the runner has not answered" in err, "valid for an hour" in err) == (
        3,
        True,
        True,
    )


def interrupt(*_):
    raise KeyboardInterrupt


def test_ctrl_c_leaves_the_run_alone(ready, capsys, monkeypatch):
    monkeypatch.setattr("tandem.cli.run_timeline.time", SimpleNamespace(sleep=interrupt))
    with answering(ready, finish(ready, state="running")):
        code = tandem(ready, "run post", *ASK)
    err = capsys.readouterr().err
    assert (code, "the run continues" in err) == (130, True)
    assert [f"tandem runs {verb} {RUN}" in err for verb in ("follow", "cancel")] == [True, True]
    assert not [key for key in list_keys(ready, "requests/") if "cancel" in key]


def test_a_dry_run_writes_nothing(ready, proxy, capsys):
    proxy.forget()
    assert tandem(ready, "run post", *HOURS, "--dry-run", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    writes = {
        row.operation
        for row in proxy.log
        if row.operation.startswith(("Put", "Update", "Create", "Delete"))
    }
    assert (writes, document["exit_code"], document["refusals"]) == (set(), 0, [])
    assert document["usd"] == pytest.approx(
        sum(step["usd"] for step in document["steps"]), abs=0.01
    )
    assert [row["starts"] for row in document["starts"]] == [1, 2, 6]


def test_a_silent_runner_blocks_a_run_but_no_plan(fleet, capsys):
    fill_bucket(fleet)
    put_beat(fleet, timedelta(minutes=6))
    codes = [tandem(fleet, "run post", *ASK), tandem(fleet, "run post", *HOURS, "--dry-run")]
    out, err = capsys.readouterr()
    assert (
        codes,
        err.count("it has not written for 6 min"),
        "total" in out,
        list_keys(fleet, "requests/"),
    ) == (
        [3, 0],
        2,
        True,
        [],
    )


def test_a_runner_with_other_specs_asks_for_a_deploy(ready, capsys):
    put_beat(ready, spec_digests={"post": "0123456789abcdef"})
    code = tandem(ready, "run post", *ASK)
    err = capsys.readouterr().err
    assert (
        code,
        "deploy or sync first" in err,
        f"npx cdk deploy {ready.name}/Workloads" in err,
    ) == (2, True, True)


@pytest.mark.proof
def test_a_fence_refuses_a_run_but_no_plan(ready, capsys):
    ready.tandem("stop", "--why", "maintenance")
    capsys.readouterr()
    codes = [tandem(ready, "run post", *ASK)]
    refusal = capsys.readouterr()
    codes.append(tandem(ready, "run post", *HOURS, "--dry-run"))
    plan = capsys.readouterr()
    assert (codes, refusal.out, "total" in plan.out) == ([2, 2], "", True)
    for err in (refusal.err, plan.err):
        assert ("maintenance" in err, FENCE_KEY in err) == (True, True)


@pytest.mark.proof
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("run post", "--hours", "9"), "guard.max_hours"),
        (("run", *HOURS), "name one of: post"),
        (("run post", *HOURS, "--run", "llmperf"), "of Tandem's own"),
        (("run --resume none", *HOURS), "it has no run none"),
    ],
)
def test_bad_input_gives_2_and_what_to_write(flags, words, ready, capsys):
    assert tandem(ready, *flags, "--yes") == 2
    assert (words in " ".join(capsys.readouterr().err.split()), list_keys(ready, "requests/")) == (
        True,
        [],
    )


@pytest.mark.proof
def test_a_damaged_artifact_is_no_gap(ready, capsys):
    (key,) = [
        key
        for key in list_keys(ready, "artifacts/")
        if "none" in key and key.endswith("manifest.json")
    ]
    put_value(ready, key, b"{}")
    code = tandem(ready, "run post", *ASK)
    err = capsys.readouterr().err
    assert (code, "is damaged" in err, f"tandem artifacts list --env {ready.name}" in err) == (
        2,
        True,
        True,
    )


def test_a_run_that_waits_goes_on_under_its_own_request(ready, capsys):
    request = make_request(
        environment=ready.name, spec_digest=compute_digest(ready), starts=2, size="quick"
    )
    put_run(ready, make_record(ready, state="waiting", request=request), ENDED_STEPS)
    with answering(ready, finish(ready, state="judged", verdict=VERDICT)) as requests:
        code = tandem(ready, f"run --resume {RUN}", "--hours", "3", "--yes")
    out = capsys.readouterr().out
    (new_request,) = requests
    assert (code, new_request.kind, new_request.run, new_request.hours) == (0, "resume", RUN, 3)
    assert (new_request.starts, new_request.size, new_request.at > request.at) == (2, "quick", True)
    assert ("4 rounds: 0.5 s" in out, "1 start:" in out) == (True, False)
    assert any(
        re.search(rf"/{RUN}\.resume-\d+\.json$", key) for key in list_keys(ready, "requests/")
    )


@pytest.mark.proof
@pytest.mark.parametrize(
    ("state", "more", "words"),
    [("judged", "run", "only a waiting run"), ("waiting", "run other", "the run is of post")],
)
def test_what_cannot_be_resumed_is_refused(state, more, words, ready, capsys):
    put_run(ready, make_record(ready, state=state))
    assert tandem(ready, f"{more} --resume {RUN}", *HOURS, "--yes") == 2
    assert words in capsys.readouterr().err
