"""`compile`: the driver that runs in the runtime's container, under the same name as the other commands."""

from __future__ import annotations

from tandem.artifacts.driver import add_arguments, run

__all__ = ["add_arguments", "run"]
