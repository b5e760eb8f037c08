"""`tandem run --dry-run --offline`: a plan from the declared files, without an account."""

from __future__ import annotations

import hashlib
import json

import pytest
import yaml
from bucket_specs import folders
from fleet_world import write_environment

from tandem.cli.program import main


@pytest.fixture(autouse=True)
def _no_account(monkeypatch, tmp_path):
    """Take every way to credentials and to AWS."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def plan(specs):
    """Plan a run of an environment that nobody has deployed."""
    name = write_environment(specs, "capacity-block", reservation_id=None)

    def run(*flags, experiment="post"):
        return main(["run", experiment, "--env", name, *folders(specs), *flags])

    return run


def test_a_plan_needs_no_account(plan, capsys):
    code = plan("--dry-run", "--offline", "--json")

    document = json.loads(capsys.readouterr().out)
    assert (code, document["usd"] > 0, document["leases"]) == (0, True, 1)


def test_an_empty_bucket_is_assumed(plan, capsys):
    plan("--dry-run", "--offline", "--json")

    gaps = json.loads(capsys.readouterr().out)["gaps"]
    assert (len(gaps["models"]), len(gaps["artifacts"])) == (2, 2)


def test_the_planned_hours_hold_the_run_in_one_lease(plan, capsys):
    plan("--dry-run", "--offline", "--json")
    hours = json.loads(capsys.readouterr().out)["request"]["hours"]

    plan("--dry-run", "--offline", "--json", "--hours", str(hours))
    fitting_leases = json.loads(capsys.readouterr().out)["leases"]
    plan("--dry-run", "--offline", "--json", "--hours", str(hours - 0.25))
    shorter_leases = json.loads(capsys.readouterr().out)["leases"]

    assert (fitting_leases, shorter_leases) == (1, 2)


def test_the_planned_hours_stay_within_the_guards(plan, capsys):
    plan("--dry-run", "--offline", "--json", "--starts", "40", "--rounds", "80")

    document = json.loads(capsys.readouterr().out)
    assert document["request"]["hours"] == 8  # guard.max_hours
    assert document["leases"] > 1


def test_what_only_an_account_knows_is_named(plan, capsys):
    plan("--dry-run", "--offline")

    out = capsys.readouterr().out
    assert "not asked the account: quotas and reservation" in out
    assert "before it write capacity.reservation_id" in out


@pytest.mark.parametrize(
    ("flags", "change"),
    [
        (("--offline",), "add --dry-run"),
        (("--offline", "--dry-run", "--resume", "x"), "leave out --offline"),
    ],
)
def test_what_needs_an_account_is_refused(flags, change, plan, capsys):
    assert plan(*flags) == 2
    assert change in capsys.readouterr().err


def test_an_unknown_experiment_is_named_before_credentials(plan, capsys):
    assert plan("--hours", "4", experiment="pots") == 2
    assert "did you mean 'post'?" in capsys.readouterr().err


PROMPTS = b"Why is the sky blue?\nHow deep is the sea?\nWhere is my invoice?\n"


@pytest.fixture
def own_suite(specs):
    """Have the experiment ask a file of three prompts, which is not at hand; return its path."""
    path = specs / "experiments" / "post.yaml"
    experiment = yaml.safe_load(path.read_text())
    suite = {"file": "prompts/support.txt", "sha256": hashlib.sha256(PROMPTS).hexdigest()}

    def declare(**fields):
        path.write_text(yaml.safe_dump(experiment | {"suites": [suite | fields], "claims": "none"}))
        return specs / suite["file"]

    return declare


def plan_rounds(plan, capsys):
    """Minutes of a round, what is not counted and what is not asked."""
    assert plan("--dry-run", "--offline", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    (minutes,) = {step["minutes"] for step in document["steps"] if step["step"] == "round-00001"}
    return minutes, document["uncounted"], document["not_asked"]


def test_prompts_at_hand_are_counted(own_suite, plan, capsys):
    path = own_suite()
    path.parent.mkdir()
    path.write_bytes(PROMPTS)
    minutes, uncounted, unasked = plan_rounds(plan, capsys)
    assert (minutes > 3, uncounted, len(unasked)) == (True, [], 3)


def test_prompts_that_are_not_at_hand_count_by_their_classes(own_suite, plan, capsys):
    own_suite(classes={"prompts": 3})
    minutes, uncounted, unasked = plan_rounds(plan, capsys)
    assert (minutes > 3, uncounted) == (True, [])
    assert unasked[-1] == "the prompts of support.txt: the files are not at hand"


def test_prompts_that_nobody_counted_are_named(own_suite, plan, capsys):
    own_suite()
    plan("--dry-run", "--offline")
    out = " ".join(capsys.readouterr().out.split())  # the screen folds its lines
    assert "+ the prompts of support.txt, not counted" in out
    assert "not counted: support.txt" in out


def test_other_bytes_at_hand_refuse_a_plan(own_suite, plan, capsys):
    path = own_suite()
    path.parent.mkdir()
    path.write_bytes(PROMPTS + b"One more?\n")
    assert plan("--dry-run", "--offline") == 2
    assert hashlib.sha256(PROMPTS).hexdigest() in capsys.readouterr().err
