"""What is legal: one table of rules, each with its source; `check_workspace` holds declared files against it."""

from tandem.rules.check import check_workspace
from tandem.rules.table import RULES

__all__ = ["RULES", "check_workspace"]
