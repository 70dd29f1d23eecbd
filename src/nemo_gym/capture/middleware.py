"""The part of a model server's stack that knows rollouts: prefix off, calls captured."""

from starlette.types import ASGIApp

from nemo_gym.capture.prefix import PrefixMiddleware, RolloutOfScope
from nemo_gym.capture.row import RowStore

__all__ = ["model_call_stack"]


def model_call_stack(
    app: ASGIApp,
    *,
    store: RowStore | None,
    model_ref_name: str,
    unprefixed: RolloutOfScope | None = None,
) -> ASGIApp:
    """Wrap the app of a model server, inside its disconnect guard.

    `store` None is capture off. `model_ref_name` is the instance name of the model server, as
    stored in every row. `unprefixed` names the rollout of calls that come without a prefix; by
    default they are forwarded and not captured.
    """
    return PrefixMiddleware(app, unprefixed=unprefixed)
