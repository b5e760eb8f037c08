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


def until(found, wanted):
    """What is found, as soon as it is what is wanted, or after ten seconds whatever it is."""
    deadline = time.monotonic() + 10
    while (seen := found()) != wanted and time.monotonic() < deadline:
        time.sleep(0.02)
    return seen
