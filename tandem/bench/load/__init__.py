"""The load: requests on the wire, and what the servers answered."""
