"""What IAM and Kubernetes let the four kinds of people and the pipeline do, written by hand, right by right.

Invariant: a kind of people has its own policy and those of the kinds before it; each right names the command or the
page that needs it, and no other right exists.
"""
