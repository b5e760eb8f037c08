"""What stands in for what a laptop lacks."""
