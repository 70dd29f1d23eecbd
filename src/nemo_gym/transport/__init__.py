"""Calls to other servers and to providers, over HTTP or in-process."""
