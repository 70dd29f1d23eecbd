"""Bytes and JSON of the three dialects to plain values and back. Pure."""
