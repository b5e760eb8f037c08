# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""Three types whose describe answer or Ref plain MiniStack gets wrong.

A Lambda's network and dead-letter queue, an instance profile's name, a role's permissions boundary.
"""

from __future__ import annotations

from ministack.services import iam, lambda_svc

NEEDS = {iam: ("_instance_profiles", "_roles"), lambda_svc: ("_functions", "_vpc_config_with_id")}


def install(handlers: dict) -> None:
    """Wrap the handlers of functions, instance profiles and roles."""
    function = handlers["AWS::Lambda::Function"]
    create, update = function["create"], function["update"]

    def created(logical_id, properties, stack):
        name, attributes = create(logical_id, properties, stack)
        return _whole(name, properties), attributes

    def updated(physical_id, old, new, stack, logical_id=None):
        name, attributes = update(physical_id, old, new, stack, logical_id)
        return _whole(name, new), attributes

    function.update(create=created, update=updated)
    _profiles_by_name(handlers["AWS::IAM::InstanceProfile"])
    _bounded_roles(handlers["AWS::IAM::Role"])


def _whole(name, properties):
    config = lambda_svc._functions[name]["config"]
    config["VpcConfig"] = lambda_svc._vpc_config_with_id(properties.get("VpcConfig"))
    config.pop("DeadLetterConfig", None)
    if properties.get("DeadLetterConfig"):
        config["DeadLetterConfig"] = properties["DeadLetterConfig"]
    return name


def _profiles_by_name(profile):
    """`Ref` of an instance profile is its name on AWS; plain MiniStack takes the ARN as physical id."""
    create, update, delete = profile["create"], profile["update"], profile["delete"]

    def arn_of(name):
        return iam._instance_profiles.get(name, {}).get("Arn", name)

    def named(outcome):
        return outcome[0].rsplit("/", 1)[-1], outcome[1]

    profile.update(
        create=lambda logical_id, properties, stack: named(create(logical_id, properties, stack)),
        update=lambda physical_id, old, new, stack, logical_id=None: named(
            update(arn_of(physical_id), old, new, stack, logical_id)
        ),
        delete=lambda physical_id, properties: delete(arn_of(physical_id), properties),
    )


def _bounded_roles(role):
    create, update = role["create"], role["update"]

    def bounded(outcome, properties):
        iam._roles[outcome[0]]["PermissionsBoundary"] = properties.get("PermissionsBoundary")
        return outcome

    role.update(
        create=lambda logical_id, properties, stack: bounded(create(logical_id, properties, stack), properties),
        update=lambda physical_id, old, new, stack, logical_id=None: bounded(
            update(physical_id, old, new, stack, logical_id), new
        ),
    )
