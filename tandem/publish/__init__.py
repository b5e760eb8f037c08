"""A run's figures to CloudWatch and records to S3, at least once (docs/decisions/0027).

Invariant: this package reads a run's folder through the bench's tables, and no declared file.
"""
