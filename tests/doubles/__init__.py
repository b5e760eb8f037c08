"""What only tests start: stand-ins for checkpoints, the hub, runtimes, and a proxy that injects
faults."""
