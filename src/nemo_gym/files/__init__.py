"""Append-and-sync, locks, atomic replace: the only room that knows fcntl and the C library."""
