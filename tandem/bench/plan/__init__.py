"""What a run will send, in which order, and what that takes: decided before anything is sent."""
