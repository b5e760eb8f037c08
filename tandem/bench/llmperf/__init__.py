"""The generator of the post, llmperf: brought, run as it is, and its results read.

Invariant: no line of llmperf stands here; what is run is its published commit, unchanged, and what it does not say of
a request stays unknown. The package of that name in the Python index is another project and is never installed.
"""
