"""Admission by policy in small: what the validating admission policies of some objects say to one request.

Source: kubernetes.io docs/reference/access-authn-authz/validating-admission-policy and the reference of its kinds. A
policy judges what its rules name and all its conditions admit. Each binding brings parameters, from the object's
namespace where its reference names none; each of them must let the object pass; none at all, and what fails to be
evaluated, is a denial where failurePolicy is Fail. `join` is Kubernetes' addition to CEL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import celpy
from celpy import celtypes

Object = dict[str, Any]
PERSON = ("tandem-operator", "system:authenticated")
NAMES = ("object", "request", "params", "variables")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRequest:
    """One request, as the API server tells a policy of it."""

    operation: str
    group: str
    resource: str
    namespace: str
    name: str
    object: Object | None
    groups: tuple[str, ...] = PERSON
    username: str = "arn:aws:sts::111122223333:assumed-role/Operator/anna"


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """A cluster's policies and what they can take parameters from."""

    objects: list[Object] = field(default_factory=list)

    def list_denials(self, request: AdmissionRequest) -> list[str]:
        """Return the messages of every policy that refuses the request."""
        return [message for binding in self._of_kind("ValidatingAdmissionPolicyBinding")
                for message in self._judge(binding, request)]  # fmt: skip

    def _of_kind(self, kind: str) -> list[Object]:
        return [body for body in self.objects if body["kind"] == kind]

    def _judge(self, binding: Object, request: AdmissionRequest) -> Iterator[str]:
        assert binding["spec"]["validationActions"] == ["Deny"]
        (policy,) = [body for body in self._of_kind("ValidatingAdmissionPolicy")
                     if body["metadata"]["name"] == binding["spec"]["policyName"]]  # fmt: skip
        spec = policy["spec"]
        assert spec["failurePolicy"] == "Fail"
        if not any(_names(rule, request) for rule in spec["matchConstraints"]["resourceRules"]):
            return
        inputs = {"object": celpy.json_to_cel(request.object), "request": celpy.json_to_cel({
            "operation": request.operation, "namespace": request.namespace, "name": request.name,
            "userInfo": {"username": request.username, "groups": list(request.groups)},
        })}  # fmt: skip
        try:
            conditions = [evaluate(condition["expression"], inputs) for condition in spec.get("matchConditions", [])]
        except celpy.CELEvalError as error:
            yield f"failed: {error}"
            return
        if not all(conditions):
            return
        parameters = self._parameters(spec, binding, request)
        if not parameters:
            yield f"no parameters for {binding['metadata']['name']}"
        for parameter in parameters:
            yield from _validate(spec, {**inputs, "params": celpy.json_to_cel(parameter)})

    def _parameters(self, policy: Object, binding: Object, request: AdmissionRequest) -> list[Object | None]:
        if "paramKind" not in policy:
            return [None]
        reference = binding["spec"]["paramRef"]
        assert reference["parameterNotFoundAction"] == "Deny"
        assert "namespace" not in reference
        labels = reference.get("selector", {}).get("matchLabels", {})
        return [
            body for body in self._of_kind(policy["paramKind"]["kind"])
            if body["apiVersion"] == policy["paramKind"]["apiVersion"]
            and body["metadata"]["namespace"] == request.namespace
            and reference.get("name", body["metadata"]["name"]) == body["metadata"]["name"]
            and labels.items() <= body["metadata"]["labels"].items()
        ]  # fmt: skip


def _names(rule: Object, request: AdmissionRequest) -> bool:
    """Whether a rule names a request; none here has a wildcard, which the assertion keeps so."""
    assert "*" not in {text for texts in rule.values() if isinstance(texts, list) for text in texts}
    return (
        request.operation in rule["operations"]
        and request.group in rule["apiGroups"]
        and request.resource in rule["resources"]
    )


def _validate(spec: Object, inputs: Mapping[str, Any]) -> Iterator[str]:
    variables = celtypes.MapType()
    try:
        for variable in spec.get("variables", []):
            variables[celtypes.StringType(variable["name"])] = evaluate(
                variable["expression"], {**inputs, "variables": variables}
            )
        for validation in spec["validations"]:
            if not evaluate(validation["expression"], {**inputs, "variables": variables}):
                yield validation["message"]
    except celpy.CELEvalError as error:
        yield f"failed: {error}"


def evaluate(expression: str, inputs: Mapping[str, Any]) -> Any:
    value = _program(expression).evaluate({name: inputs.get(name) for name in NAMES})
    if isinstance(value, celpy.CELEvalError):
        raise value
    return value


def _join(words: celtypes.ListType, separator: celtypes.StringType) -> celtypes.StringType:
    return celtypes.StringType(str(separator).join(str(word) for word in words))


@cache
def _program(expression: str) -> celpy.Runner:
    environment = celpy.Environment(annotations=dict.fromkeys(NAMES, celtypes.MapType))
    return environment.program(environment.compile(expression), functions={"join": _join})
