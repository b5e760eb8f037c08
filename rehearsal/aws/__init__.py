"""The local AWS endpoint: MiniStack in an environment of its own, with what our resource types need on top."""
