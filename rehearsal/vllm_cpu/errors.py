"""Errors in the setup or the run of a real vLLM.

Invariant: every foreseeable failure of this package is a `VllmSetupError` whose text says what
happened, where, and what to do.
"""

from __future__ import annotations


class VllmSetupError(RuntimeError):
    """The environment, weights or a server is unavailable; the text suits a 3 a.m. reader."""
