"""The benchmark: one record per request; everything else is derived from records.

Invariant: the package knows neither AWS nor Kubernetes; every stored figure can be computed again from the records.
"""
