"""Operators' commands on an account, from a laptop or a pipeline: look, check, take down.

Invariant: these commands call only the AWS API, never the Kubernetes API, which answers only inside
the VPC. They call nothing else before the credentials are known to be of the environment's account.
"""
