"""Run LLM agents in environments, collect their rollouts, keep evidence of every model call."""

__all__ = ["__version__"]

__version__ = "0.1.0"
