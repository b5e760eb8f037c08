"""Whether a process of this machine ends."""

from __future__ import annotations

import time
from pathlib import Path

LOOKS = 500
LOOK_S = 0.02


def has_ended(process_id: int) -> bool:
    """Tell whether a process ends within ten seconds; one that nobody waits for has ended too."""
    for _ in range(LOOKS):
        try:
            state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(LOOK_S)
    return False
