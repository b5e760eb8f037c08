"""Call of the stop function: for people who may invoke it but not size a node group.

IAM has one action for every size of a node group, so a right to stop by it would also be a right to
raise. The function's own role sets the size, and its code knows only 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any

from tandem.aws.faults import ANSWER_CODES, error_code
from tandem.declarations import names
from tandem.declarations.arns import build_arn
from tandem.declarations.environment import Environment
from tandem.errors import ExternalError, TandemError
from tandem.guard.values import convert_call_errors
from tandem.ops.account import create_client
from tandem.ops.faults import call_operation


def has_denial(failures: Iterable[str]) -> bool:
    """Return whether a sentence of a stop's report says that these credentials lack a right."""
    words = [f"{code}:" for code in ANSWER_CODES["denied"]]
    return any(word in sentence for sentence, word in product(failures, words))


def invoke_stop_function(environment: Environment, *, who: str, why: str) -> tuple[str, ...]:
    """Invoke the stop function and wait for it.

    Args:
        environment: as declared.
        who, why: for the fence.

    Returns:
        The actions of the function, each a sentence.

    Raises:
        ExternalError: the function cannot be invoked, is missing, could not do all, or its answer
            cannot be read.
    """
    name = names.guard_function_name(environment, "stop")
    where = f"function {name}"
    client = create_client(environment, "lambda")
    # with the account: a stranger's credentials must not call a function of this name in their own
    # account
    arn = build_arn(environment, "lambda", f"function:{name}")
    payload = json.dumps({"who": who, "why": why}).encode()
    try:
        answer = call_operation(client, "Invoke", where, FunctionName=arn, Payload=payload)
    except TandemError as error:
        if error_code(error.__cause__) != "ResourceNotFoundException":
            raise
        raise ExternalError(
            "it is not there",
            where=where,
            change="deploy the Guard stack, or log in as one that may size the node group",
        ) from error
    return _read_actions(answer, where)


def _read_actions(answer: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Return what the function did.

    Raises:
        ExternalError: it could not do all, or its answer cannot be read.
    """
    advice = "the reaper tries again within 5 minutes; docs/runbook.md#fleet-will-not-go-to-zero"
    with convert_call_errors("reading what it did", where, advice):
        report = json.loads(answer["Payload"].read())
        reason = report.get("errorMessage")
        actions = tuple(str(action) for action in report.get("done", ()))
    if "FunctionError" in answer:
        raise ExternalError(
            f"it could not do all ({reason or answer['FunctionError']})", where=where, change=advice
        )
    return actions
