"""The `openai_model` model type."""
