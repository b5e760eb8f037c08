"""Tasks for the servers of a run: lm-eval's calls and samples, and the program of the quality Job.

Invariant: this package has no line of lm-eval; it starts the published program, which holds no
credential.
"""
