"""The caller of a stop, from STS, but no condition of it: the fleet costs money meanwhile."""

from __future__ import annotations

from typing import Any, NamedTuple

from tandem.aws.client_config import GUARD_CLIENT_CONFIG
from tandem.aws.faults import classify_fault
from tandem.declarations.environment import Environment
from tandem.errors import InputError, TandemError
from tandem.guard.config import AwsClients, GuardConfig
from tandem.guard.observe import describe_node_group
from tandem.guard.values import CALL_ERRORS
from tandem.ops.account import require_account

UNKNOWN_CALLER = "unknown"


class CallerIdentity(NamedTuple):
    """The caller.

    Args:
        who: an ARN, or UNKNOWN_CALLER.
        doubt: why the caller is unknown, in one sentence without its full stop; empty if known.
    """

    who: str
    doubt: str


def identify_caller(
    environment: Environment, boto_session: Any, clients: AwsClients, config: GuardConfig
) -> CallerIdentity:
    """Return the owner of the credentials; unknown if STS gives no answer.

    Going on without STS is safe. The fence's address names the account: in our own bucket's name,
    or in the key's prefix in an existing bucket. S3 denies a stranger both. The ARN of the stop
    function names the account too. EKS and EC2 look into the account of the credentials, where an
    environment of the same name may be deployed. There the ARN that EKS gives the node group
    decides instead of STS. If EKS does not answer either, EKS also sets no size, and instances are
    ended by id only if they are older than guard.max_hours.

    Args:
        environment: as declared.
        boto_session: a boto3 session.
        clients, config: of the environment.

    Raises:
        InputError: the credentials are of another account, or AWS's settings on this machine cannot
            be used.
        ExternalError: there are no credentials.
    """
    try:
        return CallerIdentity(require_account(environment, boto_session, GUARD_CLIENT_CONFIG), "")
    except InputError:
        raise
    except TandemError as fault:
        reason = classify_fault(fault.__cause__, "GetCallerIdentity") if fault.__cause__ else None
        if reason is not None and reason.kind == "no credentials":
            raise
        doubt = fault.problem
    try:
        account = str(describe_node_group(clients, config)["nodegroupArn"]).split(":")[4]
    except (*CALL_ERRORS, IndexError):
        account = environment.account  # EKS gives no account either
    if account != environment.account:
        raise InputError(
            f"these credentials are of account {account}",
            where=f"{environment.name} in account {environment.account}",
            change=f"log in to {environment.account}",
        )
    return CallerIdentity(UNKNOWN_CALLER, doubt)
