"""The judge: computes the verdict on each variant against its baseline from the records of a run.

Invariant: the judge recomputes everything from the folder of a run. The unit of inference is the prompt, never the
request. A question that the records do not decide gets `no evidence`, with what would decide it.
"""
