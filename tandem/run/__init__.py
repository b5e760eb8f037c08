"""Steps of an experiment in the cluster: from a bucket request to a verdict and an empty fleet."""
