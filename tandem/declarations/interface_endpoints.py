"""A new VPC's interface endpoints: AWS services its nodes and pods reach without the internet."""

from __future__ import annotations

from tandem.declarations.environment import Environment
from tandem.declarations.network_settings import NewNetwork

# What nodes and pods of a cluster without internet call (EKS user guide, private clusters, 2024-12;
# eks-auth is Pod Identity). Each costs by the hour and zone, so the guide's others come with the
# program that calls them: xray (no traces), elasticloadbalancing (no load balancer), ssm and kms
# (no shell, no client-side encryption). monitoring is for the bench, whose figures go to
# CloudWatch; the metrics agent writes all it has to logs.
_SERVICES = ("ec2", "ecr.api", "ecr.dkr", "eks", "eks-auth", "logs", "monitoring", "sts")
# the provider framework calls its handler by the Lambda API, inside the VPC
_KUBECTL_SERVICES = ("lambda",)
# Where nothing leads out of the VPC: the runner, and people who start or stop on a machine inside
# it, arm and delete one-shot stops, tell people, read and hold the node group's Auto Scaling group,
# and look whether the reaper's function can run. Budgets has no endpoint anywhere.
_NO_NAT_SERVICES = ("autoscaling", "lambda", "scheduler", "sns")
_SECRET_SERVICES = ("secretsmanager",)  # where staging reads the hub's token


def list_endpoint_services(environment: Environment) -> tuple[str, ...]:
    """Return the services with interface endpoints, by last name part; none in an existing VPC."""
    network = environment.network
    if not isinstance(network, NewNetwork) or not network.has_interface_endpoints:
        return ()
    services = list(_SERVICES)
    if environment.delivery.kind == "cdk":
        services += _KUBECTL_SERVICES
    if environment.hub.token_secret:
        services += _SECRET_SERVICES
    if network.nat == "none":
        services += _NO_NAT_SERVICES
    return tuple(dict.fromkeys(services))
