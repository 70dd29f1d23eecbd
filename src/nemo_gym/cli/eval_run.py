"""`gym eval run`: run an agent on a file of tasks."""

import asyncio
from dataclasses import replace
from pathlib import Path

import click

from nemo_gym.cli.asked import Asked
from nemo_gym.cli.options import (
    FiniteRange,
    config_options,
    example,
    json_option,
    placement_options,
)
from nemo_gym.config.components import resolve_input_path
from nemo_gym.config.load import ConfigRequest, load_run_config
from nemo_gym.errors import UserMistake

__all__ = ["run"]

_DEFAULT_ATTEMPTS = 3


@click.command(
    epilog=example(
        "gym eval run --resources-server mcqa --model-type local_model \\",
        "    --agent mcqa_simple_agent --output results/mcqa.jsonl \\",
        "    --input resources_servers/mcqa/data/example.jsonl",
    )
)
@config_options
@click.option(
    "--agent", metavar="NAME", help="Agent of the rows that name none: an instance of the run."
)
@click.option(
    "--input",
    "inputs",
    required=True,
    multiple=True,
    metavar="FILE",
    help="Tasks, one JSON object a line; may be given several times.",
)
@click.option(
    "--output",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where rollouts go; the other files of the run lie beside it.",
)
@click.option("--limit", type=click.IntRange(0), metavar="N", help="Take the first N rows only.")
@click.option(
    "--num-repeats",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Rollouts of each row.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    default=32,
    show_default=True,
    metavar="N",
    help="Rollouts under way at once.",
)
@click.option("--resume", is_flag=True, help="Go on where the run stopped; retry its failures.")
@click.option("--overwrite", is_flag=True, help="Throw away an output that is there.")
@click.option(
    "--rollout-timeout",
    type=FiniteRange(0, min_open=True),
    default=3600.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest that one rollout may take.",
)
@click.option(
    "--max-rollout-attempts",
    type=click.IntRange(1),
    default=_DEFAULT_ATTEMPTS,
    show_default=True,
    metavar="N",
    help="How often a rollout may fail before --resume leaves it alone.",
)
@click.option(
    "--temperature",
    type=FiniteRange(0),
    metavar="T",
    help="Sampling temperature: ++responses_create_params.temperature.",
)
@click.option(
    "--max-output-tokens",
    type=click.IntRange(1),
    metavar="N",
    help="Longest answer of the model: ++responses_create_params.max_output_tokens.",
)
@click.option("--no-serve", is_flag=True, help="Use the servers that 'gym env start' runs.")
@placement_options
@json_option
def run(
    request: ConfigRequest,
    temperature: float | None,
    max_output_tokens: int | None,
    **given: object,
) -> int:
    """Run an agent on a file of tasks; starts the servers unless --no-serve is given."""
    asked = Asked(**given)  # type: ignore[arg-type] # click has checked the types
    if asked.resume and asked.overwrite:
        raise UserMistake(
            "--resume and --overwrite exclude each other",
            where="--resume --overwrite",
            mend="--resume goes on with the output that is there, --overwrite throws it away",
        )
    shorthands = {"temperature": temperature, "max_output_tokens": max_output_tokens}
    overrides = (
        f"++responses_create_params.{key}={value}"
        for key, value in shorthands.items()
        if value is not None
    )
    request = replace(request, overrides=(*overrides, *request.overrides))
    inputs = tuple(
        resolve_input_path(text, search_dirs=request.search_dirs) for text in asked.inputs
    )
    config = load_run_config(request)
    # `gym eval run --help` pays for none of this.
    import uvloop

    from nemo_gym.cli.evaluation import evaluate_until_ended

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(evaluate_until_ended(asked, config, inputs))
