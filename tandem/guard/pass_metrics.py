"""Names and units of the metrics that a pass publishes."""

from __future__ import annotations

PASS_MINUTES = 5  # between two passes of the reaper
INSTANCES_ALIVE = "instances_alive"
OLDEST_INSTANCE_HOURS = "oldest_instance_hours"
IDLE_BLOCK_MINUTES = "idle_block_minutes"
STOP_FAILURES = "stop_failures"
FLEET_USD = "fleet_usd"
EXCESS_NODES = "excess_nodes"
METRIC_UNITS = {
    INSTANCES_ALIVE: "Count",
    OLDEST_INSTANCE_HOURS: "None",
    IDLE_BLOCK_MINUTES: "None",
    STOP_FAILURES: "Count",
    FLEET_USD: "None",
    EXCESS_NODES: "Count",
}
"""The metrics of a pass, without dimensions, with CloudWatch's words for their units."""
