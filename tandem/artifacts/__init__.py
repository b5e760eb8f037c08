"""The life of an artifact: staged, compiled, inspected, uploaded, admitted, listed, collected.

Pods run `python -m tandem.artifacts COMMAND`; an operator may run it by hand.
"""
