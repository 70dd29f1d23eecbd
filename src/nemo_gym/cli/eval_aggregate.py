"""`gym eval aggregate`: the metrics of several outputs together, such as shards of one input."""

from pathlib import Path

import click

from nemo_gym.cli.options import example, json_option
from nemo_gym.cli.output import print_json

__all__ = ["aggregate"]


@click.command(
    epilog=example(
        "gym eval aggregate results/shard_*.jsonl --output results/all_aggregate_metrics.json"
    )
)
@click.argument(
    "outputs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="OUTPUT..."
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the metrics here as well, as JSON.",
)
@click.option("--overwrite", is_flag=True, help="Replace a FILE that is there.")
@json_option
def aggregate(
    outputs: tuple[Path, ...], output: Path | None, *, overwrite: bool, as_json: bool
) -> int:
    """Add up the rollouts of several OUTPUTs.

    Rollouts of the same input row count as repeats of one task, whichever output they are in.
    """
    # `gym eval aggregate --help` does not pay for these.
    from nemo_gym.cli.eval_report import print_agents
    from nemo_gym.errors import OutputExists
    from nemo_gym.rollouts.merge import merge_outputs
    from nemo_gym.rollouts.summary import summary_document, write_summary
    from nemo_gym.rollouts.unusable import output_unusable

    if output is not None and output.exists() and not overwrite:
        raise OutputExists(
            f"{output} is there already",
            where="--output",
            mend="give --overwrite or another --output",
        )
    merged = merge_outputs(outputs)
    if output is not None:
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            write_summary(output, merged.agents)
        except OSError as error:
            mend = "give --output a path that can be written"
            raise output_unusable("the metrics cannot be written", error, output, mend) from error
    if as_json:
        document = {"outputs": list(map(str, merged.outputs)), "warnings": list(merged.warnings)}
        print_json({**document, **summary_document(merged.agents)})
    else:
        print_agents(merged.agents)
        if output is not None:
            click.echo(f"metrics:   {output}")
    for warning in merged.warnings:
        click.secho(f"warning: {warning}", fg="yellow", err=True)
    return 0
