"""How `tandem show` and `tandem check` print what an environment costs while parked and for one run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tandem.cli.inputs import CommandInputs
from tandem.monitoring.standing_cost import ParkedCost, compute_parked_cost
from tandem.spec.environment import Environment

UNKNOWN = "?"


def compute_environment_cost(inputs: CommandInputs, environment: Environment) -> ParkedCost | None:
    """Return an environment's parked cost; None where it, or what it hosts, is refused."""
    watching_cost = inputs.watching_costs.get(environment.name)
    if watching_cost is None:
        return None
    return compute_parked_cost(environment, watching_cost, inputs.catalogue.standing_prices)


def format_parked_cost(cost: ParkedCost) -> str:
    """Return the figure in one clause; `at least` where a part's price is not known."""
    bound = "at least " if cost.is_lower_bound else ""
    return f"{bound}{cost.usd:.2f} USD a month while parked; {cost.run_usd:.2f} USD for a run of {cost.run_hours} h"


def list_part_lines(cost: ParkedCost, indent: str) -> Iterator[str]:
    """Yield a line for each part of the parked cost."""
    for part in cost.parts:
        usd = UNKNOWN if part.usd is None else f"{part.usd:.2f}"
        yield f"{indent}{usd:>9}  {part.name}: {part.explanation}"
    if cost.is_lower_bound:
        yield f"{indent}{UNKNOWN:>9}  no price of this region: tandem/spec/data/platform/standing-prices.yaml"
    yield f"{indent}           without what moves or grows: bytes through NAT, flow logs, requests, the bucket"


def build_parked_cost_dict(cost: ParkedCost) -> dict[str, Any]:
    """Return the parked cost as `--json` prints it."""
    return {
        "usd_month": round(cost.usd, 2),
        "lower_bound": cost.is_lower_bound,
        "run_usd": round(cost.run_usd, 2),
        "run_hours": cost.run_hours,
        "parts": [
            {"name": part.name, "says": part.explanation, "usd": None if part.usd is None else round(part.usd, 2)}
            for part in cost.parts
        ],
    }
