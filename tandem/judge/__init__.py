"""From the records of a run to a verdict: what may be concluded of a variant against its baseline, and what may not.

Invariant: everything is recomputed from the folder of a run; the unit of inference is the prompt, never the request;
what cannot be concluded is called no evidence, with what would decide it.
"""
