"""A real vLLM on this machine's processor, with real speculation, to compare the simulator with."""
