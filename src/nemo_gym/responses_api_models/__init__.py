"""Built-in model servers."""
