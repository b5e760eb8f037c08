"""A run's figures to CloudWatch and its records to S3, at least once (docs/decisions/0027-publish-at-least-once.md).

Invariant: knows a run's folder as figures and ranges of bytes; reads neither records nor declared files.
"""
