"""YAML, references, overrides and flags to one resolved configuration."""
