"""What speculation can give before anybody pays for a node: tokens of a step, what a step costs, what was published.

Invariant: it reads `spec` and plain numbers alone; the caller passes a run's own figures.
"""
