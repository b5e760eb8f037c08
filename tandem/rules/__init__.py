"""What is legal: one table of rules, each with its source; `check_workspace` holds declared files against it."""

from tandem.rules.check import RULES, check_workspace

__all__ = ["RULES", "check_workspace"]
