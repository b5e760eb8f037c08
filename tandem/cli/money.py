"""The declared price of a node-hour, as every command prints it."""

from __future__ import annotations

from tandem.declarations.environment import CapacitySettings


def format_price(capacity: CapacitySettings) -> str:
    """Return the declared price of a node-hour, and the day of it."""
    return f"{capacity.usd_per_hour:.2f} USD an hour (your figure of {capacity.usd_per_hour_date})"


def format_prepayment(capacity: CapacitySettings) -> str:
    """Return what a cost has to add where the capacity is paid in advance; else nothing."""
    return "; the capacity is paid already" if capacity.needs_reservation else ""
