"""What a GitOps controller applied, by the names that `tandem render` gave it: it must go first, and who removes it.

Nobody outside the VPC can see whether it is gone, so the operator says so.
"""

from __future__ import annotations

from tandem.errors import InputError
from tandem.ops.account import AccountClients
from tandem.shell_command import quote_command
from tandem.spec.driver_release import RELEASE
from tandem.spec.environment import Environment, GitopsDelivery

REMOVAL_FLAG = "--gitops-removed"


def list_gitops_objects(environment: Environment) -> tuple[str, ...]:
    """Return what the tool must remove, as `kind/name`; nothing where the CDK delivers.

    The order is that in which they may go: what runs, then what syncs it, then the driver that pods gave devices back
    to, then what all of them belong to.
    """
    name, experiments = environment.name, environment.experiments
    if not isinstance(environment.delivery, GitopsDelivery):
        return ()
    if environment.delivery.tool == "argocd":
        return (
            *(f"Application/{name}-{experiment}" for experiment in experiments),
            f"ApplicationSet/{name}",
            *(f"Application/{name}-{part}" for part in ("people", "neuron-dra", "gitops")),
            *(f"AppProject/{name}{end}" for end in ("", "-people", "-platform")),
        )
    return (
        *(f"Kustomization/{experiment}-*" for experiment in experiments),
        f"Kustomization/{name}-people",
        f"HelmRelease/{RELEASE}",
        f"OCIRepository/{RELEASE}",
        f"Kustomization/{name}-gitops",
        f"GitRepository/{name}",
    )


def require_objects_removed(account: AccountClients, *, gitops_gone: bool) -> None:
    """Make sure that the operator has said that the tool's objects are gone.

    Raises:
        InputError: with gitops, and not said.
    """
    delivery = account.environment.delivery
    if gitops_gone or not isinstance(delivery, GitopsDelivery):
        return
    tool = {"argocd": "Argo CD", "flux": "Flux"}[delivery.tool]
    remove_command = quote_command("kubectl", "delete", "-k", f"manifests/{account.name}/gitops")
    namespaces = ", ".join(f"tandem-{experiment}" for experiment in account.environment.experiments)
    raise InputError(
        f"{tool} would apply again what is deleted under it, and its volumes must leave before their driver. It holds "
        f"in namespace {delivery.namespace}: {', '.join(list_gitops_objects(account.environment))}",
        where=account.cluster,
        change=f"{remove_command}, wait until the namespaces {namespaces} are gone (kubectl get namespaces), then run "
        f"this again with {REMOVAL_FLAG}",
    )
