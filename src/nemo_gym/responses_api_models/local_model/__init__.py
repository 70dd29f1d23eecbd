"""A small language model that runs here: llama.cpp behind the model routes, no network."""
