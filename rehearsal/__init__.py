"""Stand-ins for the parts that a laptop lacks: AWS, a cluster, accelerators, a model hub."""
