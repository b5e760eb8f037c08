"""The judge: computes the verdict on each variant against its baseline from the records of a run.

Invariant: the judge recomputes everything from the folder of a run. The unit of inference is the
prompt, never the request. A question that the records do not decide gets `no evidence`, with what
would decide it.

`__all__` is the public surface, which docs/library.md describes; every other module of this package
is internal. A name is loaded when it is first used, so that a command which
judges nothing loads no scipy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tandem.judge.compare.comparison import compare_tables
    from tandem.judge.compare.schema import ComparisonRow, RunComparison
    from tandem.judge.knee import KneeFinding, judge_knee
    from tandem.judge.schema import CellVerdict, Headline, RatioEstimate, Verdict
    from tandem.judge.verdict import JudgeOptions, judge_run
else:

    def __getattr__(name: str) -> Any:
        """Load a public name (PEP 562); a type checker reads the imports above instead."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


__all__ = [
    "CellVerdict",
    "ComparisonRow",
    "Headline",
    "JudgeOptions",
    "KneeFinding",
    "RatioEstimate",
    "RunComparison",
    "Verdict",
    "compare_tables",
    "judge_knee",
    "judge_run",
]

_MODULES = {
    "CellVerdict": "schema",
    "ComparisonRow": "compare.schema",
    "Headline": "schema",
    "JudgeOptions": "verdict",
    "KneeFinding": "knee",
    "RatioEstimate": "schema",
    "RunComparison": "compare.schema",
    "Verdict": "schema",
    "compare_tables": "compare.comparison",
    "judge_knee": "knee",
    "judge_run": "verdict",
}


def __dir__() -> list[str]:
    """Return the public names for `dir`."""
    return __all__
