"""Front door: what a model server is written against."""

from fastapi import Body

from nemo_gym.servers.model import BaseResponsesAPIModelConfig, SimpleResponsesAPIModel

__all__ = ["BaseResponsesAPIModelConfig", "Body", "SimpleResponsesAPIModel"]
