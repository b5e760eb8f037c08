"""The guard, which starts and stops a fleet: fence, lease, start, stop, normal end, relabel, the third lever."""
