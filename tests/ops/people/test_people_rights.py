"""The policies of people against the calls of the commands, both ways, and against what IAM knows
of each action."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from committed import ENVIRONMENTS, environment
from policy_trial import USER, VARIABLE, allows, documents, meant, requests

from tandem.declarations.environment import Environment
from tandem.declarations.names import PEOPLE, PeopleKind
from tandem.ops.people.policies import (
    MAX_POLICY_CHARACTERS,
    build_policy,
    build_runner_policy,
    count_policy_characters,
)
from tandem.ops.people.policy_targets import build_targets
from tandem.ops.people.rights import (
    COMMANDS,
    RIGHTS,
    RUNNER_RIGHTS,
    TARGET_REASONS,
    WILDCARD_REASONS,
    can_run_command,
)

ALL = {"viewer", "engineer", "operator", "admin"}
WHO_MAY = {
    "status": ALL,
    "doctor": {*ALL, "pipeline"},
    "stop by the function": ALL,
    **dict.fromkeys(("runs", "runs show", "runs follow"), ALL),
    **dict.fromkeys(
        (
            "artifacts list and explain",
            "artifacts import",
            "artifacts stage-task",
            "artifacts stage-suite",
            "bench publish",
            "runs logs",
            "results",
            "run --until stage",
            "runs cancel of a run that stages",
        ),
        ALL - {"viewer"},
    ),
    **dict.fromkeys(
        (
            "stop",
            "stop --end",
            "stop --release",
            "relabel by the runner",
            "start",
            "run",
            "runs cancel",
            "destroy",
        ),
        frozenset(("operator", "admin")),
    ),
    **dict.fromkeys(
        ("doctor --prove-stop", "artifacts gc", "destroy what is protected"), frozenset(("admin",))
    ),
}
# what each of these does and a kind that may not must never get at, in one row: action and the
# place
CHANGES = [
    ("start", "eks:UpdateNodegroupConfig", "node group"),
    ("start", "scheduler:CreateSchedule", "schedules"),
    ("start", "autoscaling:ResumeProcesses", "Auto Scaling groups"),
    ("stop", "autoscaling:UpdateAutoScalingGroup", "Auto Scaling groups"),
    ("stop --end", "scheduler:DeleteSchedule", "schedules"),
    ("start", "s3:PutObject", "leases"),
    ("stop --release", "s3:PutObject", "fence"),
    ("destroy", "cloudformation:DeleteStack", "going stacks"),
    ("destroy", "ec2:DeleteSecurityGroup", "EKS's groups"),
    ("destroy what is protected", "cloudformation:UpdateTerminationProtection", "going stacks"),
    ("destroy what is protected", "eks:UpdateClusterConfig", "cluster"),
    ("artifacts gc", "s3:DeleteObject", "artifacts"),
    ("artifacts import", "s3:PutObject", "artifacts"),
    ("artifacts stage-task", "s3:PutObject", "task sets"),
    ("artifacts stage-suite", "s3:PutObject", "prompts"),
    ("bench publish", "s3:PutObject", "results"),
    ("run", "s3:PutObject", "own requests"),
    ("run --until stage", "s3:PutObject", "own stage requests"),
]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", PEOPLE)
def test_kind_may_make_every_call_of_its_commands(full, kind, command):
    request_rows = requests(full, command)
    denials = [
        statement for statement in request_rows if not allows(documents(full, kind), *statement)
    ]
    assert (denials == []) == (kind in WHO_MAY[command]), denials
    assert can_run_command(kind, command) == (kind in WHO_MAY[command])


@pytest.mark.parametrize(("command", "action", "on"), CHANGES)
@pytest.mark.parametrize("kind", PEOPLE)
def test_change_is_denied_without_its_command(full, kind, command, action, on):
    answers = [
        allows(documents(full, kind), action, *statement)
        for statement in meant(build_targets(full)[on])
    ]
    assert answers == [kind in WHO_MAY[command]] * len(answers)


@pytest.mark.parametrize("kind", PEOPLE)
def test_another_region_is_not_listed(full, kind):
    elsewhere = {"aws:RequestedRegion": "eu-west-1"}
    assert not allows(documents(full, kind), "ec2:DescribeInstances", "*", elsewhere)


@pytest.mark.parametrize(
    ("passed", "service", "may_pass"),
    [
        ("tandem-post-us-east-2-scheduler", "scheduler.amazonaws.com", True),
        ("tandem-post-us-east-2-scheduler", "lambda.amazonaws.com", False),
        ("Administrator", "scheduler.amazonaws.com", False),
    ],
)
def test_only_the_schedulers_role_is_passed_and_only_to_scheduler(
    example, passed, service, may_pass
):
    arn = f"arn:aws:iam::{example.account}:role/{passed}"
    answers = {
        kind: allows(
            documents(example, kind), "iam:PassRole", arn, {"iam:PassedToService": service}
        )
        for kind in PEOPLE
    }
    assert answers == {kind: may_pass and kind in {"operator", "admin"} for kind in PEOPLE}


PUBLISHERS = {"engineer", "operator", "admin"}


@pytest.mark.parametrize(
    ("space", "publishers"),
    [
        ("Tandem/post-us-east-2", PUBLISHERS),
        ("Tandem/Simulated/post-us-east-2", PUBLISHERS),
        ("Tandem/post-us-east-2-too", set()),
        ("Tandem/Guard/post-us-east-2", set()),
        ("Tandem/Guard", set()),
    ],
)
def test_metrics_are_put_into_the_spaces_of_the_bench_alone(example, space, publishers):
    """Whoever may put `instances_alive` into the guard's namespace can feign a reaper that
    lives."""
    may = {
        kind
        for kind in PEOPLE
        if allows(
            documents(example, kind),
            "cloudwatch:PutMetricData",
            "*",
            {"cloudwatch:namespace": space},
        )
    }

    assert may == publishers


BUCKET = "arn:aws:s3:::tandem-post-us-east-2-111122223333"


@pytest.mark.parametrize("kind", PEOPLE)
@pytest.mark.parametrize(
    ("folder", "kinds"),
    [
        ("requests", {"operator", "admin"}),
        ("stage-requests", {"engineer", "operator", "admin"}),
    ],
)
@pytest.mark.parametrize(
    ("key", "user", "may"),
    [
        (f"{USER}/run-1.json", USER, True),
        (f"{USER}/run-1.cancel.json", USER, True),
        (f"{USER}/run-1.json", "AROAEXAMPLEID:bert", False),
        (f"{USER}/run-1.json", "", False),
        (f"{USER}x/run-1.json", USER, False),
        ("run-1.json", USER, False),
    ],
)
def test_a_request_is_written_below_the_askers_own_id_alone(
    example, kind, folder, kinds, key, user, *, may
):
    """So that its key proves who asks."""
    context = {"aws:userid": user} if user else {}
    arn = f"{BUCKET}/{folder}/{key}"
    assert allows(documents(example, kind), "s3:PutObject", arn, context) == (may and kind in kinds)


@pytest.mark.parametrize("kind", PEOPLE)
@pytest.mark.parametrize("key", ["runs/run-1/run.json", "runner.json"])
def test_nobody_writes_the_journal_of_the_runner(example, kind, key):
    context = {"aws:userid": USER}
    assert not allows(documents(example, kind), "s3:PutObject", f"{BUCKET}/{key}", context)


@pytest.mark.parametrize("prefix", ["requests", "stage-requests"])
def test_the_runner_reads_requests_and_writes_their_answers_alone(example, prefix):
    request = f"{BUCKET}/{prefix}/{USER}/run-1.json"
    answer = f"{BUCKET}/{prefix}/{USER}/run-1.answer.json"
    policy = [build_runner_policy(example)]
    assert allows(policy, "s3:GetObject", request, {})
    assert allows(policy, "s3:PutObject", answer, {})
    assert not allows(policy, "s3:PutObject", request, {})


def statements(environment: Environment) -> Iterator[tuple[PeopleKind, dict[str, Any]]]:
    for kind in PEOPLE:
        for statement in build_policy(environment, kind)["Statement"]:
            yield kind, statement


def test_no_action_is_a_wildcard(full):
    for _, statement in statements(full):
        assert [action for action in statement["Action"] if "*" in action] == []
        assert statement["Resource"] != []


@pytest.fixture(scope="module")
def reference():
    """What the Service Authorization Reference says of each service, as cfn-lint ships it."""
    from cfnlint.helpers import load_resource  # noqa: PLC0415  # seconds, as in test_policies.py

    answers: dict[str, Any] = load_resource("cfnlint.data.AdditionalSpecs", "Policies.json")
    return answers


def types(reference: dict[str, Any], action: str) -> list[str]:
    """Patterns of the ARNs that an action takes; none: it takes `*` alone."""
    service, _, name = action.partition(":")
    kinds_taken = reference[service]["Actions"][name.lower()].get("Resources", [])
    of = {key.lower(): value for key, value in reference[service]["Resources"].items()}
    return [pattern for kind in kinds_taken for pattern in of[kind.lower()]["ARNFormats"]]


def test_bare_wildcard_stands_only_where_it_must(full, reference):
    wide = {
        action
        for _, statement in statements(full)
        if statement["Resource"] == ["*"]
        for action in statement["Action"]
    }
    assert {action for action in wide if types(reference, action)} == set(WILDCARD_REASONS)


def test_every_resource_is_of_its_actions_type(full, reference):
    strange = [
        (action, arn)
        for _, statement in statements(full)
        if statement["Resource"] != ["*"]
        for action in statement["Action"]
        for arn in statement["Resource"]
        if not any(_fits(pattern, arn) for pattern in types(reference, action))
    ]

    assert strange == []


def _fits(pattern: str, arn: str) -> bool:
    spelt = re.sub(r"\$\{\w+\}", "[^:]*", pattern.replace("arn:${Partition}", "arn:aws"))
    return re.fullmatch(spelt, VARIABLE.sub("x", arn)) is not None


def test_every_condition_is_known_to_its_resource(full, reference):
    """Global keys aside: the region of a request, and what a role is passed to."""
    everywhere = {
        "aws:RequestedRegion",
        "iam:PassedToService",
        "kms:ViaService",
        "cloudwatch:namespace",
    }
    used = {
        (key, arn)
        for _, statement in statements(full)
        for keys in statement.get("Condition", {}).values()
        for key in keys
        for arn in statement["Resource"]
        if key not in everywhere
    }

    for key, arn in used:
        service = arn.split(":")[2]
        fitting = [
            kind
            for kind in reference[service]["Resources"].values()
            if any(_fits(pattern, arn) for pattern in kind["ARNFormats"])
        ]
        spelt = re.sub(r"^aws:ResourceTag/.*", "aws:ResourceTag/${TagKey}", key)
        assert any(spelt in kind.get("ConditionKeys", []) for kind in fitting), (key, arn)


def test_every_wildcard_has_its_reason(full):
    mirror_environment = full.model_copy(
        update={"registry_mirrors": {"quay.io": "111122223333.dkr.ecr.eu-west-1.amazonaws.com"}}
    )
    answers = build_targets(mirror_environment)
    targets = {row.target for row in (*RIGHTS, *RUNNER_RIGHTS)}
    wild = {
        target
        for target in targets
        if any("*" in arn or "?" in arn for arn in answers[target].arns)
    }

    assert wild == set(TARGET_REASONS)
    assert set(answers) == targets


@pytest.mark.parametrize("kind", PEOPLE)
def test_a_policy_is_not_longer_than_iam_takes(full, kind):
    """A log bucket takes a name of 38 characters at most; in a bucket of others, keys have a longer
    prefix."""
    longest = full.model_copy(update={"name": "a" * 38, "region": "ap-southeast-4"})
    artifacts = full.artifacts.model_copy(update={"existing_bucket": "b" * 63})
    shared = longest.model_copy(update={"name": "a" * 28, "artifacts": artifacts})

    every = (*map(environment, ENVIRONMENTS), longest, shared)
    lengths = [count_policy_characters(build_policy(statement, kind)) for statement in every]
    assert max(lengths) <= MAX_POLICY_CHARACTERS
