"""Two runs beside each other, such as before and after an upgrade: what differs in set-up, what in figures.

Invariant: day and machine are confounded with the change, so nothing is called beyond what both runs differ from
themselves by.
"""
