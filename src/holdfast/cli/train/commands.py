"""`holdfast train network | recourse | counterfactual | images`."""

import typer

from holdfast.cli.guard import guarded
from holdfast.cli.train.counterfactual import counterfactual
from holdfast.cli.train.images import images
from holdfast.cli.train.network import network
from holdfast.cli.train.recourse import recourse

app = typer.Typer(
    no_args_is_help=True,
    help="Train a model for `holdfast explain` and `holdfast audit`.",
)
for _command in (network, recourse, counterfactual, images):
    app.command()(guarded(_command))
