"""`tandem stop` as its user meets it, judged by what EC2 lists at the local endpoint."""

from __future__ import annotations

import shutil
import time
from types import SimpleNamespace

import pytest
from doubles.fault_proxy.rules import (
    ACCESS_DENIED_FAULT,
    DropFault,
    FaultRule,
)

from rehearsal.aws import fleet_behavior as knobs
from tandem.guard.fence import FENCE_KEY
from tandem.guard.lease import POINTER_KEY

pytestmark = [pytest.mark.endpoint, pytest.mark.proof]


def test_a_reaper_that_is_silent_is_not_promised(bare_fleet, capsys):
    bare_fleet.deploy()
    bare_fleet.scale(1)

    code = bare_fleet.tandem("stop")

    out = " ".join(capsys.readouterr().out.split())
    assert (
        code,
        "nothing terminates what EKS leaves" in out,
        "a Lambda function in the account" in out,
    ) == (
        0,
        True,
        False,
    )


def test_wait_ends_when_ec2_lists_none_and_says_each_change(fleet, capsys):
    fleet.scale(1)
    [instance] = fleet.instances()

    code = fleet.tandem("stop", "--wait")

    out = capsys.readouterr().out
    assert (code, fleet.states()) == (0, [])
    assert f"{instance['InstanceId']} is gone" in out


def test_an_interrupt_of_wait_leaves_the_stop_to_go_on(fleet, capsys, monkeypatch):
    fleet.scale(1)
    fleet.endpoint.set_fleet(knobs.FleetBehavior(stop_delay_s=0.6))
    with monkeypatch.context() as patch:
        patch.setattr("tandem.cli.stop.time.sleep", interrupted)
        code = fleet.tandem("stop", "--wait")

    fleet.until([])
    assert (code, "the stop continues without this command" in capsys.readouterr().err) == (
        130,
        True,
    )


def interrupted(_: float) -> None:
    raise KeyboardInterrupt


def test_a_follower_that_sees_nothing_gives_up(fleet, proxy, capsys):
    fleet.scale(1)
    proxy.use(FaultRule(operation="DescribeInstances", fault=ACCESS_DENIED_FAULT))

    code = fleet.tandem("stop", "--wait")

    assert (code, "it is ended without this command" in capsys.readouterr().err) == (3, True)
    fleet.until([])


@pytest.mark.parametrize("broken", ["experiment", "folder of experiments", "neighbour"])
def test_what_is_broken_beside_it_keeps_nobody_from_stopping(fleet, broken):
    fleet.scale(1)
    if broken == "experiment":
        (fleet.specs / "experiments" / "post.yaml").write_text("variants: nonsense")
    elif broken == "neighbour":
        (fleet.specs / "environments" / "neighbour.yaml").write_bytes(b"\xff\xfe")
    else:
        shutil.rmtree(fleet.specs / "experiments")

    code = fleet.tandem("stop")

    fleet.until([])
    assert code == 0


@pytest.mark.parametrize(
    ("operation", "stops"),
    [
        ("PutObject", True),
        ("DescribeNodegroup", False),
    ],
)
def test_a_denied_part_of_a_stop_gives_3(operation, stops, fleet, proxy, capsys):
    fleet.scale(1)
    proxy.use(FaultRule(operation=operation, fault=ACCESS_DENIED_FAULT))

    code = fleet.tandem("stop")

    err = capsys.readouterr().err
    assert (code, "AccessDenied" in err, "Traceback" in err) == (3, True, False)
    if stops:
        fleet.until([])
        assert fleet.read_node_group()["scalingConfig"]["desiredSize"] == 0
    else:
        assert fleet.states() == ["running"]
        assert fleet.get(FENCE_KEY)["state"] == "stopping"  # the reaper goes on from it


def test_credentials_of_another_account_touch_nothing(fleet, proxy, capsys, monkeypatch):
    fleet.scale(1)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "999988887777")
    proxy.forget()

    code = fleet.tandem("stop")

    assert (code, "credentials are of account" in capsys.readouterr().err, fleet.states()) == (
        2,
        True,
        ["running"],
    )
    assert {instance.operation for instance in proxy.log} == {"GetCallerIdentity"}


def test_an_environment_that_was_never_deployed_has_nothing_to_stop(bare_fleet, capsys):
    code = bare_fleet.tandem("stop")
    assert (code, "nothing to stop" in capsys.readouterr().err) == (2, True)


def test_nobody_waits_for_the_end_of_what_is_anothers(bare_fleet, monkeypatch):
    bare_fleet.deploy(tags={"owner": "eksctl"})
    bare_fleet.scale(1)
    pauses: list[float] = []
    monkeypatch.setattr("tandem.cli.stop.time", SimpleNamespace(sleep=pauses.append))

    assert (bare_fleet.tandem("stop", "--wait"), bare_fleet.states(), len(pauses)) == (
        3,
        ["running"],
        1,
    )


def test_who_may_not_stop_is_told_to_deploy_guard(fleet, proxy, capsys):
    fleet.scale(1)
    proxy.use(FaultRule(operation="UpdateNodegroupConfig", fault=ACCESS_DENIED_FAULT))
    code = fleet.tandem("stop")
    assert (code, "it is not there; deploy the Guard stack" in capsys.readouterr().err) == (3, True)


STS_FAULTS = {
    "dropped": DropFault(),
    "denied": ACCESS_DENIED_FAULT,
}


@pytest.mark.parametrize("fault", STS_FAULTS.values(), ids=STS_FAULTS)
def test_a_stop_goes_on_where_sts_gives_no_answer(fault, fleet, proxy, capsys):
    fleet.scale(1)
    proxy.use(FaultRule(operation="GetCallerIdentity", fault=fault))

    code = fleet.tandem("stop")

    fleet.until([])
    err = capsys.readouterr().err
    assert (code, fleet.get(FENCE_KEY)["who"], "the caller of this stop is unknown" in err) == (
        0,
        "unknown",
        True,
    )
    assert "Traceback" not in err


def test_a_stranger_is_known_by_the_node_groups_account(fleet, proxy, capsys):
    fleet.scale(1)
    account = fleet.environment.account
    file = fleet.specs / "environments" / f"{fleet.name}.yaml"
    file.write_text(file.read_text().replace(account, "999988887777"))
    proxy.use(FaultRule(operation="GetCallerIdentity", fault=DropFault()))
    proxy.forget()

    code = fleet.tandem("stop")

    assert (code, f"credentials are of account {account}" in capsys.readouterr().err) == (2, True)
    assert fleet.states() == ["running"]
    assert {instance.operation for instance in proxy.log} == {
        "GetCallerIdentity",
        "DescribeNodegroup",
    }


END = ("start", "--hours", "2", "--yes", "--run", "mine")


@pytest.fixture
def at_once(monkeypatch):
    """Let the pauses of a normal end take no time."""
    monkeypatch.setattr("tandem.cli.stop.time", SimpleNamespace(sleep=lambda _: time.sleep(0.05)))


@pytest.mark.usefixtures("at_once")
def test_an_end_leaves_no_lease_and_no_fence(fleet, capsys):
    fleet.tandem(*END)
    fleet.until(["running"])
    capsys.readouterr()

    code = fleet.tandem("stop", "--end", "--run", "mine")

    out = capsys.readouterr().out
    assert (code, fleet.states(), fleet.get(POINTER_KEY)["run"]) == (0, [], None)
    assert ("run mine has ended; next: tandem start" in out, "EC2 lists no instance" in out) == (
        True,
        True,
    )
    assert fleet.tandem("start", "--hours", "2", "--yes", "--run", "second") == 0


def test_a_run_is_named_with_end_alone(fleet, capsys):
    assert fleet.tandem("stop", "--run", "mine") == 2
    assert "--run works only with --end" in capsys.readouterr().err


def test_a_reason_in_another_encoding_is_no_traceback(fleet, capsys):
    fleet.scale(1)
    code = fleet.tandem("stop", "--why", "caf\udce9")  # as Python reads Latin-1 from a command line
    assert (code, fleet.get(FENCE_KEY)["why"], capsys.readouterr().err) == (0, "caf\ufffd", "")
