"""The post's environment and experiment, as the checkout declares them."""

from __future__ import annotations

from rehearsal.aws.installation import REPOSITORY
from tandem.declarations.names import experiment_namespace
from tandem.declarations.workspace import load_workspace

NAME = "post-us-east-2"
_WORKSPACE = load_workspace(REPOSITORY / "environments", REPOSITORY / "experiments", (NAME,))
ENVIRONMENT = _WORKSPACE.environments[NAME].record
EXPERIMENT = _WORKSPACE.experiments["post"].record
NAMESPACE = experiment_namespace(EXPERIMENT)
VARIANTS = tuple(variant.name for variant in EXPERIMENT.all_variants())
