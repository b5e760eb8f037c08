"""The table: every rule, in the order in which faults are told."""

from __future__ import annotations

from typing import Any

from tandem.rules import (
    access,
    capacity,
    comparison,
    compilation,
    dates,
    delivery,
    hub,
    images,
    kubernetes,
    leftovers,
    lengths,
    models,
    naming,
    network,
    node_resources,
    observability,
    pairing,
    placement,
    runtimes,
    speculation,
    tuning,
)
from tandem.rules.rule import Rule

RULES: tuple[Rule[Any], ...] = (
    *runtimes.RULES,
    *models.RULES,
    *speculation.RULES,
    *pairing.RULES,
    *comparison.RULES,
    *lengths.RULES,
    *tuning.RULES,
    *placement.RULES,
    *node_resources.RULES,
    *compilation.RULES,
    *capacity.RULES,
    *dates.RULES,
    *kubernetes.RULES,
    *images.RULES,
    *hub.RULES,
    *network.RULES,
    *access.RULES,
    *leftovers.RULES,
    *delivery.RULES,
    *observability.RULES,
    *naming.RULES,
)
