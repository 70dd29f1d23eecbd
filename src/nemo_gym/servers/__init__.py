"""The stack of a server and the base classes a user derives from."""
