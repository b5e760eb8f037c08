"""Faults of AWS, as botocore reports them."""
