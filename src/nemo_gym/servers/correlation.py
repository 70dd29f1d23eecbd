"""Where a rollout's id goes into paths and base URLs. Text in, text out."""

from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel
from starlette.requests import Request

from nemo_gym.errors import InvalidRolloutId
from nemo_gym.ids import (
    RolloutId,
    current_rollout_id,
    join_prefix,
    rollout_id_of_record,
    split_prefix,
)
from nemo_gym.servers.context import raw_path_of

__all__ = ["prefixed_base_url", "rollout_of_body", "rollout_of_request"]


def rollout_of_body(body: object) -> RolloutId | None:
    """Return the id that a run request carries, be it a model or a mapping."""
    if isinstance(body, BaseModel):
        return rollout_id_of_record(body.model_extra or {}) or rollout_id_of_record(vars(body))
    if isinstance(body, Mapping):
        return rollout_id_of_record(body)
    return None


def rollout_of_request(request: Request) -> RolloutId | None:
    """Return the id in the prefix of an inbound call, else the rollout it was made for."""
    try:
        rollout_id, _ = split_prefix(raw_path_of(request.scope))
    except InvalidRolloutId:
        return None
    return rollout_id or current_rollout_id()


def prefixed_base_url(base_url: str, rollout_id: RolloutId | None) -> str:
    """Put the prefix after the origin: `http://h/v1` becomes `http://h/ng-rollout/<id>/v1`."""
    parts = urlsplit(base_url)
    return urlunsplit(parts._replace(path=join_prefix(rollout_id, parts.path)))
