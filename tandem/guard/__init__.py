"""The guard, which starts and stops a fleet: fence, lease, start, stop, end, relabel, lever."""
