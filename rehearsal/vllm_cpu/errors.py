"""What can fail when a real vLLM is set up or run.

Invariant: every foreseeable failure of this package is a `VllmSetupError` whose text says what happened, where, and
what
to do.
"""

from __future__ import annotations


class VllmSetupError(RuntimeError):
    """The environment, the weights or a server cannot be had; the text is for who reads it at three in the morning."""
