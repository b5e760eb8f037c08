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

MODULES = (
    runtimes, models, speculation, pairing, comparison, lengths, tuning, placement, node_resources, compilation,
    capacity, dates, kubernetes, images, hub, network, access, leftovers, delivery, observability, naming,
)  # fmt: skip
RULES: tuple[Rule[Any], ...] = tuple(rule for module in MODULES for rule in module.RULES)
