"""What the guard needs besides fence, stop and start: bounded lists, the third lever, a normal end, other labels."""
