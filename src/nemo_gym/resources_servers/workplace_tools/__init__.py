"""An office in memory: mail, a calendar and contacts that a model works on with tools."""
