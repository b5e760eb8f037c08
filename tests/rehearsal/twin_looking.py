"""Looking at an endpoint until it shows what is waited for."""

from __future__ import annotations

import time

_CLIENTS = {}


def client(endpoint, service):
    """One client for a service of an endpoint; making one takes longer than any call."""
    key = endpoint.url, service
    if key not in _CLIENTS:
        _CLIENTS[key] = endpoint.client(service)
    return _CLIENTS[key]


def until(look, goal, seconds=10):
    """Return what a look shows, as soon as it is what is wanted, or at last whatever it is."""
    deadline = time.monotonic() + seconds
    state = look()
    while state != goal and time.monotonic() < deadline:
        time.sleep(0.02)
        state = look()
    return state
