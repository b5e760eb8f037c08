"""A small local model hub over real HTTP, for the hub's own client."""
