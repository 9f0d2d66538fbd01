"""TODO(room)."""
