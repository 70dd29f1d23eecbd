"""Every command of `gym` by name: what it does in a line, and where its code is.

Reading this table costs nothing, so `gym --help` imports no command.
"""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["COMMANDS", "Noun", "Verb"]


@dataclass(frozen=True, slots=True)
class Verb:
    """One command."""

    target: str
    """`module:function` of the click command."""
    help: str


@dataclass(frozen=True, slots=True)
class Noun:
    """A group of commands."""

    help: str
    verbs: Mapping[str, Verb]


COMMANDS: Mapping[str, Noun | Verb] = {
    "env": Noun(
        "Start, check and scaffold environments.",
        {
            "start": Verb(
                "nemo_gym.cli.env_start:start", "Start the servers of an environment and keep them."
            ),
            "status": Verb(
                "nemo_gym.cli.env_status:status", "List live runs, their servers and their health."
            ),
            "stop": Verb("nemo_gym.cli.env_stop:stop", "Stop a live run."),
            "validate": Verb(
                "nemo_gym.cli.env_config:validate", "Check a configuration; list all mistakes."
            ),
            "resolve": Verb(
                "nemo_gym.cli.env_config:resolve", "Print the final configuration, secrets hidden."
            ),
            "init": Verb(
                "nemo_gym.cli.env_init:init", "Write the files of a new environment to start from."
            ),
        },
    ),
    "eval": Noun(
        "Run agents on tasks and add up the results.",
        {
            "run": Verb("nemo_gym.cli.eval_run:run", "Run an agent on a file of tasks."),
            "aggregate": Verb(
                "nemo_gym.cli.eval_aggregate:aggregate", "Merge the outputs of several runs."
            ),
        },
    ),
    "list": Noun(
        "List the components that can be used.",
        {
            "agents": Verb("nemo_gym.cli.list_components:agents", "List agent types."),
            "models": Verb("nemo_gym.cli.list_components:models", "List model types."),
            "resources-servers": Verb(
                "nemo_gym.cli.list_components:resources_servers", "List environments."
            ),
        },
    ),
    "capture": Noun(
        "Read and check captured model calls, or capture those of any agent.",
        {
            "ls": Verb("nemo_gym.cli.capture_ls:ls", "List captured rollouts."),
            "show": Verb("nemo_gym.cli.capture_show:show", "Show the model calls of a rollout."),
            "verify": Verb("nemo_gym.cli.capture_verify:verify", "Check a capture directory."),
            "repair": Verb("nemo_gym.cli.capture_repair:repair", "Move damaged bytes aside."),
            "tail": Verb("nemo_gym.cli.capture_tail:tail", "Print model calls as they come."),
            "serve": Verb(
                "nemo_gym.cli.capture_serve:serve", "Serve a provider's API and capture the calls."
            ),
        },
    ),
    "top": Verb("nemo_gym.cli.top:top", "Watch a live run."),
}
