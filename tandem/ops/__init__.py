"""What operators do with an account, from a laptop or a pipeline: look, check, take down.

Invariant: the AWS API alone is asked, never the Kubernetes API, which answers inside the VPC only; and nobody is asked
for anything before the credentials are known to be of the environment's account.
"""
