"""A server's process, asked over real HTTP."""

from __future__ import annotations

import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence

READY_S = 30
END_S = 30


class Served:
    """A running server; made when it answers `/health`, has ended or took too long."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], port: int | str
    ) -> None:
        self.port = port
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        ends = time.monotonic() + READY_S
        while (
            self.process.poll() is None and time.monotonic() < ends and self.ask("/health") != 200
        ):
            time.sleep(0.05)

    def ask(self, path: str, body: bytes | None = None) -> int:
        """Return the status of an answer; 0 where nobody answers."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.port}{path}", data=body, timeout=5
            ) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def end(self) -> str:
        """Send SIGTERM; all that the server said."""
        if self.process.poll() is None:
            self.process.terminate()
        err, _ = self.process.communicate(timeout=END_S)
        return err
