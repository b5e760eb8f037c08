"""The day and the machine of a measurement, as documents state them."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime


def taken_on() -> str:
    """Return today, the machine's cores and Python's version in words."""
    return f"{datetime.now(UTC).date()}, {os.cpu_count()} cores, Python {platform.python_version()}"
