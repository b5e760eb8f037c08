"""The life of an artifact: staged, compiled, verified, uploaded, admitted, listed, collected.

`python -m tandem.artifacts COMMAND` is what pods run, and what an operator may run by hand.
"""
