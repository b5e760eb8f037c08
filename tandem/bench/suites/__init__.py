"""Suites: the prompts of a measurement, and the content check of their answers.

Invariant: prompts are data files; a hash identifies the prompts; the content check gives each
answer one of six words.
"""
