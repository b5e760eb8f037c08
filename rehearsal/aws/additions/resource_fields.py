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
    create = function["create"]
    update = function["update"]

    def create_with_fields(logical_id, properties, stack):
        name, attributes = create(logical_id, properties, stack)
        return _store_function_fields(name, properties), attributes

    def update_with_fields(physical_id, old, new, stack, logical_id=None):
        name, attributes = update(physical_id, old, new, stack, logical_id)
        return _store_function_fields(name, new), attributes

    function.update(create=create_with_fields, update=update_with_fields)
    _install_profile_names(handlers["AWS::IAM::InstanceProfile"])
    _install_role_boundaries(handlers["AWS::IAM::Role"])


def _store_function_fields(name, properties):
    config = lambda_svc._functions[name]["config"]
    config["VpcConfig"] = lambda_svc._vpc_config_with_id(properties.get("VpcConfig"))
    config.pop("DeadLetterConfig", None)
    if properties.get("DeadLetterConfig"):
        config["DeadLetterConfig"] = properties["DeadLetterConfig"]
    return name


def _install_profile_names(profile):
    """Make `Ref` of an instance profile its name, as on AWS; plain MiniStack's id is the ARN."""
    create = profile["create"]
    update = profile["update"]
    delete = profile["delete"]

    def arn_of(name):
        return iam._instance_profiles.get(name, {}).get("Arn", name)

    def use_name(outcome):
        return outcome[0].rsplit("/", 1)[-1], outcome[1]

    profile.update(
        create=lambda logical_id, properties, stack: use_name(
            create(logical_id, properties, stack)
        ),
        update=lambda physical_id, old, new, stack, logical_id=None: use_name(
            update(arn_of(physical_id), old, new, stack, logical_id)
        ),
        delete=lambda physical_id, properties: delete(arn_of(physical_id), properties),
    )


def _install_role_boundaries(role):
    create = role["create"]
    update = role["update"]

    def store_boundary(outcome, properties):
        iam._roles[outcome[0]]["PermissionsBoundary"] = properties.get("PermissionsBoundary")
        return outcome

    role.update(
        create=lambda logical_id, properties, stack: store_boundary(
            create(logical_id, properties, stack), properties
        ),
        update=lambda physical_id, old, new, stack, logical_id=None: store_boundary(
            update(physical_id, old, new, stack, logical_id), new
        ),
    )
