"""The simulator: an OpenAI-compatible server that behaves as vLLM on Neuron does, without an accelerator.

It says in its log what it did. Its process model (`process`) runs in virtual time too, without HTTP.
"""
