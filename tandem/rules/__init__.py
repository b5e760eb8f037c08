"""The table of rules with their sources, by which `check_workspace` checks declared files."""

from tandem.rules.check import RULES, check_workspace

__all__ = ["RULES", "check_workspace"]
