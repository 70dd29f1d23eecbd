"""The command line: parse, call a room, print."""
