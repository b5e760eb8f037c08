"""What all calls of AWS share: the settings of clients, and what botocore's errors mean."""
