"""Who asks for a stop: asked of STS as always, but no condition of the stop, because money burns meanwhile."""

from __future__ import annotations

from typing import Any, NamedTuple

from botocore.config import Config

from tandem.aws_fault import unanswered
from tandem.ops.account import require_account
from tandem.ops.fault import OpsError, RefusedError
from tandem.spec.environment import Environment
from tandem.stop import RAISED, Clients, Guarded, words

UNKNOWN_CALLER = "unknown"
PATIENCE = Config(connect_timeout=2, read_timeout=8, retries={"total_max_attempts": 3, "mode": "standard"})


class CallerIdentity(NamedTuple):
    """Who asks.

    Args:
        who: an ARN, or UNKNOWN_CALLER.
        doubt: why it is unknown, in one sentence without its full stop; empty where it is known.
    """

    who: str
    doubt: str


class BriefSession:
    """A boto3 session whose clients wait for AWS no longer than those of a stop do."""

    def __init__(self, shared: Any) -> None:
        self.shared = shared

    def client(self, service: str, **options: Any) -> Any:
        """Return a client as the session makes it, but for its patience."""
        return self.shared.client(service, **options | {"config": PATIENCE})


def identify_caller(environment: Environment, shared: Any, clients: Clients, guarded: Guarded) -> CallerIdentity:
    """Return whose credentials these are; unknown where STS gives no answer.

    Going on without STS is safe. The fence's address names the account: it is part of our own bucket's name, and of the
    key's prefix in an existing one, and S3 denies a stranger both. So does the ARN of the stop function.
    EKS and EC2 look into the account of the credentials, where an environment of the same name may be deployed: there
    the ARN that EKS gives the node group decides in the place of STS. Where EKS does not answer either, it takes no
    size, and nothing is ended by id but what has outlived guard.max_hours.

    Args:
        environment: as declared.
        shared: a boto3 session.
        clients, guarded: of the environment.

    Raises:
        RefusedError: they are of another account, or AWS's settings on this machine cannot be used.
        OpsError: there are no credentials.
    """
    try:
        return CallerIdentity(require_account(environment, BriefSession(shared)), "")
    except RefusedError:
        raise
    except OpsError as fault:
        reason = unanswered(fault.__cause__, "GetCallerIdentity") if fault.__cause__ else None
        if reason is not None and reason.kind == "no credentials":
            raise
        doubt = fault.problem
    except RAISED as error:  # botocore stumbles over a page that answers in the place of STS
        doubt = words(error)
    _require_own_node_group(environment, clients, guarded)
    return CallerIdentity(UNKNOWN_CALLER, doubt)


def _require_own_node_group(environment: Environment, clients: Clients, guarded: Guarded) -> None:
    """Make sure that the node group is not of another account, as far as EKS says.

    Raises:
        RefusedError: it is.
    """
    try:
        answer = clients.eks.describe_nodegroup(clusterName=guarded.cluster, nodegroupName=guarded.node_group)
        account = str(answer["nodegroup"]["nodegroupArn"]).split(":")[4]
    except (*RAISED, IndexError):
        return
    if account != environment.account:
        raise RefusedError(
            f"these credentials are of account {account}", where=f"{environment.name} in account {environment.account}",
            change=f"log in to {environment.account}",
        )  # fmt: skip
