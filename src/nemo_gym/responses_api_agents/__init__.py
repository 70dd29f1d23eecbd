"""Built-in agent harnesses."""
