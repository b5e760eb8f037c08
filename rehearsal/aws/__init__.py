"""The local AWS endpoint: MiniStack in its own environment, with additions for our types."""
