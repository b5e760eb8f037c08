"""Rights of the four kinds of people and of the pipeline in IAM and Kubernetes, written by hand, right by right.

Invariant: a kind of people has its own policy and those of the kinds before it. Each right names the command or the
page that needs it, and no other right exists.
"""
