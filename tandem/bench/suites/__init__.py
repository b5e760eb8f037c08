"""Suites: the prompts that a measurement asks, and the check of what comes back.

Invariant: prompts are data files; what is asked is hashed; an answer is judged by one of six words.
"""
