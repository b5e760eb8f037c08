"""A small Kubernetes API for rehearsals (docs/rehearsal-cluster.md)."""
