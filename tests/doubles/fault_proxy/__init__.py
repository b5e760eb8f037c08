"""Faults between a client and a local endpoint: an HTTP proxy, its rules and its log."""
