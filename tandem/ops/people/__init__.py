"""Rights of the four kinds of people and the pipeline in IAM and Kubernetes, one by one.

Invariant: a kind of people has its own policy and those of the kinds before it. Each right names
the command or the page that needs it, and no other right exists.
"""
