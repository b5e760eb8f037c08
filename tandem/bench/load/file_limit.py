"""The limit on open files of this process."""

from __future__ import annotations

import resource


def raise_file_limit(socket_count: int) -> None:
    """Raise how many files this process may open, where it needs more than it may.

    Args:
        socket_count: sockets of the run; twice as many files are allowed, up to the hard limit of
            the system.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2 * socket_count and soft != resource.RLIM_INFINITY:
        limit = 2 * socket_count if hard == resource.RLIM_INFINITY else min(2 * socket_count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
