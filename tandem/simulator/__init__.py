"""The simulator: an OpenAI-compatible server that acts like vLLM on Neuron without an accelerator.

Its truth log records its actions. Its process model (`engine`) also runs in virtual time, without
HTTP.
"""
