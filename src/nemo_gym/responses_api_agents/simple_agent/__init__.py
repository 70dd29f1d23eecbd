"""The built-in agent: a tool-calling loop over the Responses API."""
