"""What `verifier_metadata` of a row says: the state to begin with, and the state to reach."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nemo_gym.errors import InvalidRow
from nemo_gym.resources_servers.workplace_tools.compare import Looseness, differences
from nemo_gym.resources_servers.workplace_tools.toolbox import call_tool
from nemo_gym.resources_servers.workplace_tools.workplace import KINDS, ToolMistake, Workplace
from nemo_gym.wire.json import dumps

__all__ = ["Task"]

_METADATA = "verifier_metadata"
_FIELDS = frozenset({"subject", "body", "title", "location", "notes", "name", "company", "role"})


@dataclass(frozen=True, slots=True)
class Task:
    """One task, ready to be worked on and to be judged."""

    before: Workplace
    expected: Workplace
    loose: Looseness

    @classmethod
    def of(cls, row: Mapping[str, Any], office: Workplace) -> "Task":
        """Read a row whose state is `office` with the row's own changes.

        Raises `InvalidRow` for expected actions that are missing or fail, and for words in free
        text that the expected actions themselves do not have.
        """
        said = row.get(_METADATA)
        if not isinstance(said, Mapping) or not isinstance(said.get("expected_actions"), list):
            raise InvalidRow(
                f"{_METADATA}.expected_actions is missing",
                mend='give the calls that solve the task: [{"tool": …, "arguments": {…}}, …]',
            )
        before = office.patched(_patch(said.get("changed_state")))
        expected = before.copy()
        for number, action in enumerate(said["expected_actions"]):
            _run(expected, number, action)
        task = cls(before, expected, _looseness(said.get("free_text")))
        wrong = task.judge(expected)
        if wrong:
            raise InvalidRow(
                f"the expected actions do not pass themselves: {wrong[0]}",
                where=f"{_METADATA}.free_text",
                mend="ask only for words that the expected actions write",
            )
        return task

    def judge(self, actual: Workplace) -> list[str]:
        """Return what is not as it should be, one sentence each."""
        return differences(self.before, self.expected, actual, self.loose)


def _run(office: Workplace, number: int, action: Any) -> None:
    place = f"{_METADATA}.expected_actions[{number}]"
    if not isinstance(action, Mapping) or not isinstance(action.get("tool"), str):
        raise InvalidRow(f"{place} is {action!r}", mend='write {"tool": NAME, "arguments": {…}}')
    try:
        call_tool(office, action["tool"], dumps(action.get("arguments") or {}))
    except ToolMistake as problem:
        raise InvalidRow(f"{place} fails: {problem}", mend="correct the action") from None


def _patch(given: Any) -> Mapping[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not set(given) <= set(KINDS):
        raise InvalidRow(
            f"{_METADATA}.changed_state is {given!r}",
            mend=f'write {{"emails": {{"mail-1": null}}}}, with any of {", ".join(KINDS)}',
        )
    return given


def _looseness(given: Any) -> Looseness:
    if given is None:
        return Looseness()
    if not isinstance(given, Mapping) or not all(map(_is_free_text, given.items())):
        raise InvalidRow(
            f"{_METADATA}.free_text is {given!r}",
            mend='write {"emails.body": ["words", "it must contain"]}',
        )
    return Looseness(given)


def _is_free_text(item: tuple[Any, Any]) -> bool:
    kind, _, name = str(item[0]).partition(".")
    words = item[1]
    is_list = isinstance(words, Sequence) and not isinstance(words, str)
    return kind in KINDS and name in _FIELDS and is_list
