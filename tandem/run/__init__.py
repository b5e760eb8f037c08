"""Steps of an experiment inside the cluster: from a request in the bucket to a verdict and an empty fleet."""
