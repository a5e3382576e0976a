"""`penstock cluster`: the commands that start, watch and rearrange a cluster, under one name.

Called by cli.app.
"""

import typer

from penstock.cli import reassign
from penstock.cli.cluster_elect import elect
from penstock.cli.cluster_moves import drain, rebalance
from penstock.cli.cluster_status import load, status
from penstock.cli.cluster_up import up

app = typer.Typer(no_args_is_help=True, help="Start a cluster on this machine; watch and rearrange any cluster.")

app.command("up")(up)
app.command("status")(status)
app.command("load")(load)
app.add_typer(reassign.app, name="reassign")
app.command("drain")(drain)
app.command("rebalance")(rebalance)
app.command("elect")(elect)
