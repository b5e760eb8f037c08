"""The post's environment and experiment, as the checkout declares them."""

from __future__ import annotations

from shipped import load_shipped

from tandem.declarations.names import experiment_namespace

NAME = "post-us-east-2"
_WORKSPACE = load_shipped()
ENVIRONMENT = _WORKSPACE.environments[NAME].record
EXPERIMENT = _WORKSPACE.experiments["post"].record
NAMESPACE = experiment_namespace(EXPERIMENT)
VARIANTS = tuple(variant.name for variant in EXPERIMENT.all_variants())
