"""The environment: a row and a response in, reward 1 or 0 out."""

from collections.abc import Mapping
from typing import Any, ClassVar

from fastapi import FastAPI, Request

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.resources_servers.mcqa.extract import (
    Extraction,
    Mode,
    extract,
    extract_by_pattern,
    final_text,
)
from nemo_gym.resources_servers.mcqa.row import Judging, response_text
from nemo_gym.resources_servers.raw_answers import front_json_route, with_members

__all__ = ["Mcqa", "McqaConfig", "McqaVerifyResponse"]


class McqaConfig(BaseResourcesServerConfig):
    """Settings of the environment."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    grading_mode: Mode = "letter"
    """What counts as an answer in rows that do not say."""


class McqaVerifyResponse(BaseVerifyResponse):
    """The request with its reward: 1 for the right option, else 0."""

    correct: bool
    """Whether the right option was chosen."""
    answered: bool
    """Whether an option could be read from the answer."""
    extracted_answer: str | None = None
    """Letter of the chosen option; None when there was no answer."""
    extracted_from: str | None = None
    """The form that decided; None when the answer had none."""


class Mcqa(SimpleResourcesServer):
    """Judges answers to multiple-choice questions; keeps nothing between calls."""

    config: McqaConfig

    def setup_webserver(self) -> FastAPI:
        """Return the app; what is not overridden has routes without validation."""
        app = super().setup_webserver()
        if type(self).verify is Mcqa.verify:
            front_json_route(app, "/verify", self._raw_verify)
        if type(self).seed_session is SimpleResourcesServer.seed_session:
            front_json_route(app, "/seed_session", _nothing)
        return app

    async def verify(self, body: BaseVerifyRequest) -> McqaVerifyResponse:
        """Return the request with its reward; raises `InvalidRow` for a row without a question."""
        row = body.model_dump(mode="json")
        return McqaVerifyResponse.model_validate({**row, **self._judged(row)})

    async def _raw_verify(self, request: Request, row: dict[str, Any]) -> bytes:
        return with_members(await request.body(), self._judged(row))

    def _judged(self, row: Mapping[str, Any]) -> dict[str, Any]:
        judging = Judging.of(row, self.config.grading_mode)
        found = _extraction(final_text(response_text(row.get("response"))), judging)
        correct = found.letter == judging.expected
        return {
            "reward": float(correct),
            "correct": correct,
            "answered": found.letter is not None,
            "extracted_answer": found.letter,
            "extracted_from": found.how,
            **_of_subject(row, float(correct)),
        }


def _of_subject(row: Mapping[str, Any], reward: float) -> dict[str, float]:
    """Return the reward again under the row's subject.

    A numeric field is a metric, so each subject gets its mean and interval from the driver as rows
    finish; computed here from all rows at the end, it would need them all in memory.
    """
    subject = row.get("subject")
    return {f"reward[subject={subject}]": reward} if isinstance(subject, str) else {}


def _extraction(text: str, judging: Judging) -> Extraction:
    if judging.pattern is not None:
        return extract_by_pattern(text, judging.options, judging.pattern)
    return extract(text, judging.options, judging.mode)


async def _nothing(_request: Request, _row: dict[str, Any]) -> dict[str, Any]:
    return {}


if __name__ == "__main__":
    Mcqa.run_webserver()
