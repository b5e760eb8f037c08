"""The report: a verdict as one page that needs nothing but itself, and its charts as pictures.

Invariant: the page says what verdict.json says and judges nothing; what it does not show it counts, and names the file
that has it. Whatever comes from records is text.
"""

from tandem.report.page import ReportFiles, write_report

__all__ = ["ReportFiles", "write_report"]
