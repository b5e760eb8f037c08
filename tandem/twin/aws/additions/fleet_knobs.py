# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""How fleets behave here, said by a test over HTTP, and the clock that they and schedules go by.

`GET` and `PUT /_tandem/fleet` take all knobs at once as JSON; what a PUT leaves out is at its default again. When a
PUT is answered, whatever its clock made due has been done. `tandem.twin.aws.fleet` has the meaning of each knob.
Invariant: a reset of the endpoint puts every knob and the clock back.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields

from ministack import app

NEEDS = {app: ("_reset_all_state", "app")}

PATH = "/_tandem/fleet"
# held by whoever changes instances, groups or what is scheduled
lock = threading.RLock()
# what is done before a PUT is answered, in this order; the other modules add themselves
due: list[Callable[[], None]] = []
# what else a reset forgets
forget: list[Callable[[], None]] = []


@dataclass(frozen=True)
class Knobs:
    """The same fields as `tandem.twin.aws.fleet.Fleet`; a test holds them together."""

    start_delay_s: float = 0.2
    stop_delay_s: float = 0.2
    slow_factor: float = 1.0
    ignores_request: bool = False
    keeps_surplus: bool = False
    refuses_update: bool = False
    throttles: bool = False
    no_capacity: bool = False
    half: bool = False
    only: str = ""
    clock_offset_s: float = 0.0
    older_s: float = 0.0
    retry_delay_s: float = 1.0


_now_in_force = Knobs()


def of(node_group: str = "") -> Knobs:
    """What is in force for a node group, `cluster/name`; clock and schedules are the same for all."""
    said = _now_in_force
    if not said.only or node_group in ("", said.only):
        return said
    return Knobs(clock_offset_s=said.clock_offset_s, retry_delay_s=said.retry_delay_s)


def now() -> float:
    """Seconds since the epoch by the endpoint's clock."""
    return time.time() + _now_in_force.clock_offset_s


def stamp(moment_s: float) -> str:
    """A moment as EC2 writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(moment_s))


def install(_handlers: dict) -> None:
    """Serve the knobs, and forget them at a reset."""
    served, reset = app.app, app._reset_all_state

    async def with_knobs(scope, receive, send):
        if scope["type"] == "http" and scope["path"] == PATH:
            await _answer(scope["method"], receive, send)
        else:
            await served(scope, receive, send)

    def forgotten():
        with lock:  # or a group that is still known would start anew what EC2 has forgotten already
            _use(Knobs())
            for each in forget:
                each()
            reset()

    app.app, app._reset_all_state = with_knobs, forgotten


def _use(knobs):
    global _now_in_force  # noqa: PLW0603  # one endpoint has one set
    _now_in_force = knobs


async def _answer(method, receive, send):
    status, value = 200, None
    if method == "PUT":
        try:
            _use(_checked(json.loads(await _body(receive))))
        except (TypeError, ValueError) as fault:
            status, value = 400, {"refused": str(fault)}
        else:
            for act in due:
                await asyncio.to_thread(act)
    head = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": head})
    said = value or {**asdict(_now_in_force), "now": now()}
    await send({"type": "http.response.body", "body": json.dumps(said).encode()})


async def _body(receive):
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


def _checked(said):
    if not isinstance(said, dict):
        raise TypeError(f"{PATH} takes an object of knobs")
    known = {field.name: type(field.default) for field in fields(Knobs)}
    unknown = sorted(said.keys() - known.keys())
    if unknown:
        raise ValueError(f"{PATH} knows no {', '.join(unknown)}")
    for name, value in said.items():
        wanted = (int, float) if known[name] is float else known[name]
        if not isinstance(value, wanted) or (known[name] is float and isinstance(value, bool)):
            raise TypeError(f"{name} is {value!r}, wanted: {known[name].__name__}")
        if known[name] is float and value < 0:
            raise ValueError(f"{name} is {value}, which is less than 0")
    return Knobs(**said)
