"""What is legal: one table of rules, each with its source, and `judge`, which holds declared files against it."""

from tandem.rules.judge import judge
from tandem.rules.table import RULES

__all__ = ["RULES", "judge"]
