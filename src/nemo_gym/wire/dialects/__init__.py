"""One module a dialect: stream assembly, terminal events, error bodies. Pure."""
