"""Mistakes of the user, collected while a configuration is read, raised as one."""

from dataclasses import dataclass, field

from nemo_gym.errors import ConfigMistake, UserMistake

__all__ = ["Problems", "SeveralMistakes"]


class SeveralMistakes(ConfigMistake):
    """More than one mistake in one configuration, each with its place and remedy."""

    def __init__(self, mistakes: tuple[UserMistake, ...]) -> None:
        super().__init__(f"the configuration has {len(mistakes)} mistakes")
        self.mistakes = mistakes

    def __str__(self) -> str:
        listed = (f"{n}. {mistake}" for n, mistake in enumerate(self.mistakes, 1))
        return "\n".join([f"{self.what}:", *listed])


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
