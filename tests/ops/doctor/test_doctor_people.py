"""Who may enter the cluster, and who is told."""

from __future__ import annotations

from doctor_world import ACCOUNT, World

from tandem.spec import names
from tandem.spec.environment import AlarmSubscription, ClusterAccess, ObservabilitySettings


def told(world: World, *endpoints: tuple[str, str]) -> None:
    subscriptions = tuple(AlarmSubscription(protocol=protocol, endpoint=endpoint) for protocol, endpoint in endpoints)
    world.change(observability=ObservabilitySettings(alarm_subscriptions=subscriptions))


def access(world: World, *admins: str) -> None:
    world.change(cluster={"access": ClusterAccess.model_construct(admin=admins, operator=(), engineer=(), viewer=())})


def test_principals_that_exist_are_ok(world: World) -> None:
    access(world, f"arn:aws:iam::{ACCOUNT}:role/PlatformAdmin", f"arn:aws:iam::{ACCOUNT}:user/somebody")

    assert world.only("principals").said == "2 principals of cluster.access exist"


def test_a_role_that_does_not_exist_is_bad_input(world: World) -> None:
    access(world, f"arn:aws:iam::{ACCOUNT}:role/path/to/Nobody")

    line = world.only("principals")

    assert (line.level, line.code) == ("fail", 2)
    assert line.command == "aws iam get-role --role-name Nobody"


def test_a_role_of_another_account_is_not_asked_for(world: World) -> None:
    access(world, "arn:aws:iam::999999999999:role/Theirs")

    assert world.levels("principals") == ["warn"]
    assert "GetRole" not in {one.operation for one in world.proxy.log}


def test_a_cluster_that_nobody_may_enter_is_warned_of(world: World) -> None:
    access(world)

    assert "nobody can enter" in world.only("principals").said


def test_that_nobody_is_told_is_warned_of(world: World) -> None:
    told(world)

    assert world.levels("subscriptions") == ["warn"]


def test_before_the_first_deploy_there_is_no_topic(world: World) -> None:
    told(world, ("email", "oncall@example.com"))

    assert world.levels("subscriptions") == ["ok"]


def test_a_subscriber_that_was_never_deployed_is_warned_of(world: World) -> None:
    told(world, ("email", "oncall@example.com"))
    world.endpoint.client("sns").create_topic(Name=names.topic_name(world.environment))

    assert "declared and not subscribed" in world.only("subscriptions").said


def test_a_subscriber_that_has_not_confirmed_is_warned_of(world: World) -> None:
    told(world, ("email", "oncall@example.com"))
    world.facts.subscriptions = {"oncall@example.com": "PendingConfirmation"}

    line = world.only("subscriptions")

    assert line.level == "warn"
    assert "has not confirmed" in line.said


def test_a_subscriber_that_has_confirmed_is_ok(world: World) -> None:
    queue = world.endpoint.client("sqs").create_queue(QueueName=world.environment.name)["QueueUrl"]
    arn = world.endpoint.client("sqs").get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])
    told(world, ("sqs", arn["Attributes"]["QueueArn"]))
    sns = world.endpoint.client("sns")
    topic = sns.create_topic(Name=names.topic_name(world.environment))["TopicArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn["Attributes"]["QueueArn"])

    assert world.only("subscriptions").said == "1 of 1 subscribers have confirmed"
