"""The `anthropic_model` model type."""
