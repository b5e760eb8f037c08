"""A real vLLM on this machine's processor, with real speculation: what the simulator is held against."""
