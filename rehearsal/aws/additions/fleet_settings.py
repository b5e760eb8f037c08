# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""The behavior of fleets here, which a test sets over HTTP, and the clock of fleets and schedules.

`GET` and `PUT /_tandem/fleet` take all knobs at once as JSON; a knob that a PUT leaves out returns
to its default. The answer to a PUT comes after all actions that its clock makes due.
`rehearsal.aws.fleet_behavior` explains each knob. Invariant: a reset of the endpoint resets every
knob and the clock.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, fields

from fleet_behavior import FleetBehavior
from ministack import app

PATH = "/_tandem/fleet"
# for every change of instances, groups or schedules
lock = threading.RLock()
# actions before the answer to a PUT, in this order; the other modules add themselves
due_actions: list[Callable[[], None]] = []
# further paths that take a PUT, with what checks and stores its JSON; the due actions come after it
routes: dict[str, Callable[[object], None]] = {}
# further actions of a reset
reset_actions: list[Callable[[], None]] = []


_current_settings = FleetBehavior()


def read_settings() -> FleetBehavior:
    """Return the knobs as they are now."""
    return _current_settings


def current_time() -> float:
    """Return the seconds since the epoch by the endpoint's clock."""
    return time.time() + _current_settings.clock_offset_s


def format_time(time_s: float) -> str:
    """Return a moment as EC2 writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time_s))


def install(_handlers: dict) -> None:
    """Serve the knobs, and forget them at a reset."""
    serve_app = app.app
    reset = app._reset_all_state

    async def serve_with_settings(scope, receive, send):
        if scope["type"] == "http" and (scope["path"] == PATH or scope["path"] in routes):
            await _answer_request(
                scope["method"], routes.get(scope["path"], _store_settings), receive, send
            )
        else:
            await serve_app(scope, receive, send)

    def reset_all():
        # otherwise a group that still exists restarts instances that EC2 has already forgotten
        with lock:
            _set_settings(FleetBehavior())
            for action in reset_actions:
                action()
            reset()

    app.app = serve_with_settings
    app._reset_all_state = reset_all


def _store_settings(values):
    _set_settings(_check_settings(values))


def _set_settings(settings):
    global _current_settings  # noqa: PLW0603  # one endpoint has one set
    _current_settings = settings


async def _answer_request(method, store, receive, send):
    status = 200
    value = None
    if method == "PUT":
        try:
            store(json.loads(await _read_body(receive)))
        except (TypeError, ValueError) as error:
            status = 400
            value = {"refused": str(error)}
        else:
            for action in due_actions:
                await asyncio.to_thread(action)
    head = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": head})
    content = value or {**asdict(_current_settings), "now": current_time()}
    await send({"type": "http.response.body", "body": json.dumps(content).encode()})


async def _read_body(receive):
    body = b""
    has_more = True
    while has_more:
        message = await receive()
        body += message.get("body", b"")
        has_more = message.get("more_body", False)
    return body


def _check_settings(values):
    if not isinstance(values, dict):
        raise TypeError(f"{PATH} takes an object of knobs")
    field_types = {field.name: type(field.default) for field in fields(FleetBehavior)}
    unknown = sorted(values.keys() - field_types.keys())
    if unknown:
        raise ValueError(f"{PATH} knows no {', '.join(unknown)}")
    for name, value in values.items():
        accepted_types = (int, float) if field_types[name] is float else field_types[name]
        if not isinstance(value, accepted_types) or (
            field_types[name] is float and isinstance(value, bool)
        ):
            raise TypeError(f"{name} is {value!r}, wanted: {field_types[name].__name__}")
        if field_types[name] is float and value < 0:
            raise ValueError(f"{name} is {value}, which is less than 0")
    return FleetBehavior(**values)
