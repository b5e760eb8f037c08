"""The builders of runs' tests, for the tests of verdicts too."""

from __future__ import annotations
