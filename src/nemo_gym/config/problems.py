"""Mistakes of the user, collected while a configuration is read, raised as one."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from nemo_gym.errors import ConfigMistake, UserMistake

__all__ = ["Problems", "SeveralMistakes", "one_a_line"]


# As wide as `  where: ` and `  mend:  `, which messages begin with.
_BELOW = "\n" + " " * 9


class SeveralMistakes(ConfigMistake):
    """More than one mistake in one configuration, each with its place and remedy."""

    def __init__(self, mistakes: tuple[UserMistake, ...]) -> None:
        super().__init__(f"the configuration has {len(mistakes)} mistakes")
        self.mistakes = mistakes

    def __str__(self) -> str:
        listed = (f"{n}. {mistake}" for n, mistake in enumerate(self.mistakes, 1))
        return "\n".join([f"{self.what}:", *listed])


def one_a_line(parts: Iterable[str]) -> str:
    """Return places or steps, each once, so that they stand below each other in a message."""
    return _BELOW.join(dict.fromkeys(parts))


@dataclass(slots=True)
class Problems:
    """What is wrong so far."""

    found: list[UserMistake] = field(default_factory=list)

    def add(self, what: str, *, where: str | None = None, mend: str | None = None) -> None:
        """Note one mistake."""
        self.found.append(ConfigMistake(what, where=where, mend=mend))

    def take(self, mistake: UserMistake) -> None:
        """Note one that was raised; one made of several is taken apart."""
        parts = mistake.mistakes if isinstance(mistake, SeveralMistakes) else (mistake,)
        self.found.extend(parts)

    def raise_any(self) -> None:
        """Raise what was found: one mistake as it is, several as one."""
        if len(self.found) == 1:
            raise self.found[0]
        if self.found:
            raise SeveralMistakes(tuple(self.found))
