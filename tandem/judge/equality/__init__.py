"""Whether a variant gives the baseline's output: pairs by digest, the baseline as yardstick.

Invariant: prompts are the units; a text is read only where two outputs differ.
"""
