"""Measuring: one record per request, and everything else derived from records.

Invariant: knows neither AWS nor Kubernetes; no figure is stored that the records do not give again.
"""
