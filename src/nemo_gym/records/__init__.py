"""The records users see, built from exchanges. Pure."""
