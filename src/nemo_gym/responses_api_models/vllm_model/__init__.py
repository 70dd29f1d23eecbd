"""The `vllm_model` model type."""
