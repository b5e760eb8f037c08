"""`tandem destroy` on what the real CDK CLI deployed, killed at 20 random moments; the name is
stamped again after."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from product_change import write_change
from torn import Torn

from rehearsal.aws.cdk_cli import CdkCli, read_stacks
from rehearsal.aws.endpoint import AwsEndpoint
from rehearsal.aws.sandbox import (
    FICTITIOUS_ACCOUNT,
    create_prerequisites,
    create_sandbox,
)
from tandem.declarations import names

pytestmark = pytest.mark.proof

ROOT = Path(__file__).resolve().parents[2]
KILLS = 20
CASES = {"post-us-east-2": (), "native-us-east-2": ("--gitops-removed",)}
WITNESS = "models/witness.txt"
A_DESTROY_THAT_EXPECTS_ALL_STACKS = """
import tandem.ops.destroy.steps as steps
from tandem.errors import InputError
read = steps.read_stack
def require_stack(account, kind):
    stack = read(account, kind)
    if stack is None:
        raise InputError("this stack is gone", where=kind, change="deploy it first")
    return stack
steps.read_stack = require_stack
"""


@pytest.fixture(scope="module", params=sorted(CASES))
def stamp(request, tmp_path_factory):
    """An environment that the CDK CLI deployed once, its bucket with an object in it."""
    home = tmp_path_factory.mktemp("stamped")
    sandbox = create_sandbox(request.param, ROOT / "environments", ROOT / "experiments", home)
    region = sandbox.environment.region
    with AwsEndpoint(
        account=FICTITIOUS_ACCOUNT, region=region, state_dir=home / "deployed"
    ) as endpoint:
        create_prerequisites(sandbox, endpoint.client)
        cdk = CdkCli(endpoint=endpoint, sandbox=sandbox, work_folder=home)
        cdk.bootstrap(sandbox.environment.bootstrap.qualifier)
        cdk.deploy()
        assert set(map(kind_of, read_stacks(endpoint, sandbox.name))) == set(sandbox.stack_kinds)
        endpoint.client("s3").put_object(
            Bucket=names.bucket_name(sandbox.environment), Key=WITNESS, Body=b"here before"
        )
    torn = Torn(
        name=sandbox.name,
        account=FICTITIOUS_ACCOUNT,
        region=region,
        declared=home,
        state=home / "deployed",
        home=home,
        flags=CASES[request.param],
    )
    torn.undisturbed()
    return torn, sandbox


def kind_of(stack: str) -> str:
    return stack.rpartition("-")[2]


def test_killed_at_random_moments_it_ends_with_the_same_list(stamp, chance, report):
    torn, _ = stamp
    kills = Counter()
    trials = 0
    runs = 0
    while kills.total() < KILLS // len(CASES):
        with torn.again() as (endpoint, proxy):
            for _ in range(chance.choice([1, 1, 2, 3])):
                proxy.forget()
                number, when = moment = torn.moment(chance)
                if torn.killed(endpoint, proxy, moment):
                    kills[f"{proxy.log[-1].operation} {when}"] += 1
                runs += 1
            code, left, output = torn.to_the_end(endpoint, proxy)
            there = endpoint.client("s3").get_object(
                Bucket=names.bucket_name(stamp[1].environment), Key=WITNESS
            )
            assert (code, left) == (0, torn.expected), f"killed at {number} {when}: {output}"
            assert there["Body"].read() == b"here before"
        trials += 1

    report(
        environment=torn.name,
        kills=dict(sorted(kills.items())),
        trials=trials,
        runs=runs,
        requests_of_an_undisturbed_run=len(torn.requests),
        left=sum(map(len, torn.expected)),
    )


def test_the_same_name_is_stamped_again_over_what_stayed(stamp, report):
    torn, sandbox = stamp
    with torn.again() as (endpoint, proxy):
        code, _, output = torn.to_the_end(endpoint, proxy)
        assert code == 0, output
        CdkCli(endpoint=endpoint, sandbox=sandbox, work_folder=torn.home).deploy()
        stacks = read_stacks(endpoint, sandbox.name)
        body = (
            endpoint.client("s3")
            .get_object(Bucket=names.bucket_name(sandbox.environment), Key=WITNESS)["Body"]
            .read()
        )
        second, left, output = torn.to_the_end(endpoint, proxy)

    assert set(map(kind_of, stacks)) == set(sandbox.stack_kinds)
    assert all(stack.status.endswith("_COMPLETE") for stack in stacks.values())
    assert body == b"here before"
    assert (second, left[1:]) == (0, torn.expected[1:]), output
    report(environment=torn.name, stacks=len(stacks), orphans=len(left[1]))


def test_a_destroy_that_cannot_go_on_is_caught(stamp, chance, tmp_path, monkeypatch):
    torn, sandbox = stamp
    new_pair = replace(
        torn, variables=write_change(tmp_path / "change", A_DESTROY_THAT_EXPECTS_ALL_STACKS)
    )
    second_deletion = [
        number for number, name in enumerate(torn.requests, 1) if name == "DeleteStack"
    ][1]
    monkeypatch.setattr(Torn, "moment", lambda *_: (second_deletion, "asked"))
    monkeypatch.setitem(globals(), "KILLS", len(CASES))
    with pytest.raises(AssertionError, match="this stack is gone"):
        test_killed_at_random_moments_it_ends_with_the_same_list(
            (new_pair, sandbox), chance, lambda **_: None
        )
