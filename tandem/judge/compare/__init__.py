"""Comparison of two runs, such as before and after an upgrade: their differences in set-up and in figures.

Invariant: day and machine are confounded with the change, so a difference is called only beyond the noise floors of
both runs.
"""
