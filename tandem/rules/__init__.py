"""The table of rules, each with its source; `check_workspace` checks declared files by these rules."""

from tandem.rules.check import RULES, check_workspace

__all__ = ["RULES", "check_workspace"]
