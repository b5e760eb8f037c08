# ruff: noqa: SLF001 - MiniStack is untyped and has no public interface
"""EventBridge rules by the endpoint's clock, checked ten times a second, not every ten seconds.

If the clock jumps forward, a rule fires once, however often it was due meanwhile.
"""

from __future__ import annotations

import threading

from ministack.services import eventbridge

from . import fleet_settings
from .handlers import wrap_changes

TICK_S = 0.3
_tick_lock = threading.Lock()
_originals = {}


def install(handlers: dict) -> None:
    """Give the service's own check our clock."""
    _originals["tick"] = eventbridge._tick_scheduled_rules
    eventbridge._tick_scheduled_rules = _tick_rules
    # not its `time`, by which messages to queues become visible
    eventbridge._now_ts = fleet_settings.current_time
    eventbridge._SCHEDULER_TICK_INTERVAL = TICK_S
    fleet_settings.due_actions.append(_tick_rules)
    fleet_settings.reset_actions.append(eventbridge._rule_last_fired.clear)
    wrap_changes(handlers["AWS::Events::Rule"], after=_set_creation_time)


def _set_creation_time(*_: object) -> None:
    """Set a template rule's creation time; plain MiniStack has none, so rates count from later."""
    for rule in eventbridge._rules.values():
        rule.setdefault("CreationTime", fleet_settings.current_time())


def _tick_rules() -> None:
    with _tick_lock:
        forget_stale(eventbridge._rule_last_fired, eventbridge._rules._data)
        _originals["tick"]()


def forget_stale(fire_times: dict, existing_rules: dict) -> None:
    """Forget firings of rules that are gone; move future firings to now if a clock went back."""
    for key, fired_at in list(fire_times.items()):
        if key not in existing_rules:
            fire_times.pop(key, None)
        else:
            fire_times[key] = min(fired_at, fleet_settings.current_time())
