"""The user's command that restarts a server: its process, and what it printed.

Invariant: the command is waited for and never ended. It has a session of its own, so that Ctrl-C in
the terminal reaches neither the command nor a server that it started. Its output goes to a file, so
nobody waits for the end of an output that a daemon keeps open.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tandem.bench.records.terminal_text import clean_text
from tandem.errors import ExternalError, convert_os_errors

_ID_LINE = re.compile(r"^start=(\S+)\s*$", re.MULTILINE)
_LONGEST_LINE = 200  # characters of the output in a message
_OUTPUT_BYTES = 64 << 10  # of the end of the output that is searched for the ID


class RestartCommand:
    """One run of a command by `sh -c`.

    Args:
        command: of the user.
        log: file that gets the output, after what it has.

    Attributes:
        log: as given.

    Raises:
        ExternalError: the file cannot be written, or there is no `sh`.
    """

    def __init__(self, command: str, log: Path) -> None:
        self.log = log
        change = "make room, then run again with --resume; what was recorded is kept"
        with (
            convert_os_errors("the restart cannot begin", log, change, ExternalError),
            log.open("ab") as output,
        ):
            self._offset = output.tell()
            self._process = subprocess.Popen(  # noqa: S603 - the user's own command
                ["sh", "-c", command],  # noqa: S607 - as a shell finds it
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Number of its process."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the command itself has ended, whatever it left in the background.

        Raises:
            ExternalError: it failed.
        """
        code = self._process.poll()
        if code:
            problem = f"the restart command failed with exit code {code}"
            if code < 0:
                problem = f"the restart command was ended by signal {-code}"
            raise ExternalError(
                f"{problem}{self._quote_last_line()}",
                where=str(self.log),
                change="correct it, then go on with --resume DIR --restart [NAME=]COMMAND",
            )
        return code == 0

    def read_start_id(self) -> str | None:
        """Return the ID of the last line `start=ID` that it printed; None without one."""
        ids = _ID_LINE.findall(self._read_output())
        return ids[-1] if ids else None

    def _quote_last_line(self) -> str:
        lines = self._read_output().strip().splitlines()
        return f": {clean_text(lines[-1])[:_LONGEST_LINE]}" if lines else ""

    def _read_output(self) -> str:
        with self.log.open("rb") as output:
            end = output.seek(0, 2)
            output.seek(max(self._offset, end - _OUTPUT_BYTES))
            return output.read().decode(errors="replace")
