"""Errors in the setup or the run of a real vLLM.

Invariant: every foreseeable failure of this package is a `VllmSetupError` whose text says what happened, where, and
what to do.
"""

from __future__ import annotations


class VllmSetupError(RuntimeError):
    """The environment, the weights or a server is not available; the text is for a reader at three in the morning."""
