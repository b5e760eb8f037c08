"""llmperf, the load generator of the post: its source, its calls and its results.

Invariant: this package has no line of llmperf; it runs the published commit unchanged, and facts of
a request that llmperf does not report stay unknown. The package of that name in the Python index is
another project; never install it.
"""
