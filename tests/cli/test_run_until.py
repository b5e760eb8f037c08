"""`tandem run --until`: requests that end before a measurement, in an account that may have no
fleet yet."""

from __future__ import annotations

import pytest
from fleet_world import write_environment
from run_records import (
    RUN,
    answering,
    list_requests,
    make_record,
    make_request,
    put_beat,
    put_run,
    read_request,
    tandem,
)

pytestmark = [pytest.mark.endpoint, pytest.mark.usefixtures("quick")]
STAGE = ("--until", "stage")
COMPILE = ("--until", "compile", "--hours", "6")
ASK = ("--yes", "--run", RUN)


@pytest.fixture(autouse=True)
def _fleet_alone(monkeypatch):
    monkeypatch.setattr("tandem.cli.run_draft.RUN_CHECKS", frozenset({"fleet"}))


@pytest.fixture
def blockless(bare_fleet):
    """An environment of a Capacity Block that nobody has reserved: it has a bucket and a runner,
    and no Fleet."""
    bare_fleet.name = write_environment(bare_fleet.specs, "capacity-block", reservation_id=None)
    bare_fleet.deploy(group=False)
    put_beat(bare_fleet)
    return bare_fleet


def end_run(fleet, state, reason):
    """Return what a runner leaves of a run that reached its last step."""
    fields = {"state": state, "reason": reason, "leases": (), "node_s": 0.0}
    return lambda request: put_run(fleet, make_record(fleet, request=request, **fields))


def test_staging_is_requested_below_its_own_prefix(blockless):
    with answering(blockless):
        tandem(blockless, "run post", *STAGE, *ASK, "--detach")
    key, request = read_request(blockless)
    assert key.startswith("stage-requests/")
    assert (request.until, request.hours) == ("stage", 0)


def test_staging_calls_no_service_of_the_fleet(blockless, proxy):
    proxy.forget()
    with answering(blockless):
        tandem(blockless, "run post", *STAGE, *ASK, "--detach")
    operations = {row.operation for row in proxy.log}
    assert "PutObject" in operations
    assert not {
        operation
        for operation in operations
        if any(
            word in operation
            for word in ("Nodegroup", "Instances", "Schedule", "Reservation", "Budget", "Scaling")
        )
    }


def test_compiling_without_a_fleet_is_refused(blockless, capsys):
    assert tandem(blockless, "run post", *COMPILE, *ASK) == 2
    assert "it has no Fleet stack yet" in capsys.readouterr().err


def test_compiling_is_an_operators_request(fleet):
    put_beat(fleet)
    with answering(fleet, end_run(fleet, "compiled", "the bucket has every model and artifact")):
        assert tandem(fleet, "run post", *COMPILE, *ASK) == 0
    key, request = read_request(fleet)
    assert key.startswith("requests/")
    assert (request.until, request.hours) == ("compile", 6)


@pytest.mark.parametrize(
    ("flags", "refused"),
    [
        ((*STAGE, "--hours", "6"), "--hours"),
        ((*COMPILE, "--rounds", "4"), "--rounds"),
        ((*COMPILE, "--starts", "2"), "--starts"),
        ((), "--hours is missing"),
        ((*COMPILE, "--resume", RUN), "--until"),
    ],
)
def test_flags_that_do_not_fit_are_refused(flags, refused, fleet, capsys):
    assert tandem(fleet, "run post", *flags) == 2
    assert refused in capsys.readouterr().err
    assert not list_requests(fleet)


def test_cancel_of_a_staging_goes_below_its_prefix(fleet):
    request = make_request(environment=fleet.name, until="stage", hours=0)
    put_run(fleet, make_record(fleet, state="running", request=request))
    with answering(fleet):
        assert tandem(fleet, f"runs cancel {RUN}", "--yes") == 0
    key, _ = read_request(fleet)
    assert key.startswith("stage-requests/")
