"""Comparison of two runs, as before and after an upgrade: set-up and figures.

Invariant: day and machine are confounded with the change, so a difference is called only beyond the
noise floors of both runs.
"""
