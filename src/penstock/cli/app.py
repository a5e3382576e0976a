"""The commands as one typer application, and the one place where their failures are printed.

Called by cli.main. `serve` stands in the list for `penstock --help` only: main runs it without coming here.
"""

import contextlib
import logging
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from penstock import __version__
from penstock.admin.failures import FAILED, INTERRUPTED, CommandFailed, explain
from penstock.cli import (
    archive,
    bench,
    capacity,
    cluster_app,
    configs,
    consume,
    doctor,
    groups,
    log,
    pipeline,
    produce,
    quotas,
    replay,
    report,
    sql,
    topics,
    transactions,
)
from penstock.cli.output import say


class CommandGroup(TyperGroup):
    """Turns expected failures of any command into a sentence on stderr and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except CommandFailed as failure:
            say(f"penstock: {failure}")
            raise typer.Exit(failure.exit_code) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # Whoever read our output has had enough of it, which is not a failure.
            leave_the_pipe()
            raise typer.Exit(0) from None
        except Exception as error:
            if type(error).__name__ != "KafkaException":
                raise
            say(f"penstock: {explain(error, 'the cluster answered')}")
            raise typer.Exit(FAILED) from None


def leave_the_pipe() -> None:
    """Give Python another stdout to flush at its end: the broken one would make it complain."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


# Parts of the broker that commands use speak to its log; here the commands themselves say what matters.
logging.getLogger("penstock").addHandler(logging.NullHandler())

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    help="A message queue that every Kafka client can use: run a broker, and look after any Kafka cluster.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command(add_help_option=False, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def serve(context: typer.Context) -> None:
    """Run a broker, or several."""
    from penstock.cli import serve as server

    raise typer.Exit(server.main(context.args))


@app.command(add_help_option=False, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def gateway(context: typer.Context) -> None:
    """Serve a cluster over HTTP: schema registry, REST, console."""
    from penstock.cli import gateway as server

    raise typer.Exit(server.main(context.args))


app.add_typer(cluster_app.app, name="cluster")
app.add_typer(topics.app, name="topics")
app.add_typer(groups.app, name="groups")
app.add_typer(transactions.app, name="transactions")
app.add_typer(configs.app, name="configs")
app.add_typer(quotas.app, name="quotas")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.add_typer(log.app, name="log")
app.command("doctor")(doctor.doctor)
app.add_typer(bench.app, name="bench")
app.command("capacity")(capacity.capacity)
# On Spark, which they import when they are run.
app.add_typer(pipeline.app, name="pipeline")
app.command("sql")(sql.sql)
app.add_typer(archive.app, name="archive")
app.command("replay")(replay.replay)
app.command("report")(report.report)
