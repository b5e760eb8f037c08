"""The address of stand-ins: 127.0.0.1, on a free port."""

from __future__ import annotations

import socket

HOST = "127.0.0.1"


def find_free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def is_listening(port: int) -> bool:
    """Return whether somebody listens on the port."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0
