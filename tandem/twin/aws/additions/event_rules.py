# ruff: noqa: SLF001 - MiniStack is untyped and has no public interface
"""EventBridge rules by the endpoint's clock, looked at ten times a second and not every ten.

A clock that was put forward makes a rule fire once, however often it was due meanwhile.
"""

from __future__ import annotations

import threading

from ministack.services import eventbridge

from . import fleet_knobs

NEEDS = {eventbridge: ("_SCHEDULER_TICK_INTERVAL", "_now_ts", "_rule_last_fired", "_rules", "_tick_scheduled_rules")}

TICK_S = 0.1
_ticking = threading.Lock()
_originals = {}


def install(handlers: dict) -> None:
    """Put our clock under the service's own look."""
    _originals["tick"] = eventbridge._tick_scheduled_rules
    eventbridge._tick_scheduled_rules = _tick
    eventbridge._now_ts = fleet_knobs.now  # not its `time`, by which messages to queues become visible
    eventbridge._SCHEDULER_TICK_INTERVAL = TICK_S
    fleet_knobs.due.append(_tick)
    fleet_knobs.forget.append(eventbridge._rule_last_fired.clear)
    rule = handlers["AWS::Events::Rule"]
    create = rule["create"]
    rule["create"] = lambda logical_id, properties, stack: _counted_from_now(create(logical_id, properties, stack))


def _counted_from_now(outcome: tuple) -> tuple:
    """A rule of a template has no time of creation in plain MiniStack, so its rate counts from some later look."""
    for rule in eventbridge._rules.values():
        rule.setdefault("CreationTime", fleet_knobs.now())
    return outcome


def _tick() -> None:
    with _ticking:
        forget_stale(eventbridge._rule_last_fired, eventbridge._rules._data)
        _originals["tick"]()


def forget_stale(last_fired: dict, known: dict) -> None:
    """Forget the firing of what is gone, and bring back what a clock that was put back left in the future."""
    for key, fired_at in list(last_fired.items()):
        if key not in known:
            last_fired.pop(key, None)
        else:
            last_fired[key] = min(fired_at, fleet_knobs.now())
