"""What speculation can give before anybody pays for a node: tokens, costs, published rows.

Invariant: it reads `spec` and plain numbers alone; the caller passes a run's own figures.
"""
