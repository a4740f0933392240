"""The command `monarq`: puts the groups together, and turns errors into messages and exit codes."""

from __future__ import annotations

import sys

import typer

from monarq import __version__
from monarq.cli import api_keys, bench, buffer, config, serve
from monarq.cli.messages import complain
from monarq.errors import MonarqError, SettingsError

app = typer.Typer(
    name="monarq",
    help="One broker for messages and jobs, on SQLite or PostgreSQL.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
serve.add_to(app)
bench.add_to(app)
app.add_typer(config.app, name="config")
app.add_typer(api_keys.app, name="api-key")
app.add_typer(buffer.app, name="buffer")


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


def main() -> None:
    """The script's entry point."""
    try:
        app()
    except SettingsError as error:
        complain("the settings cannot be used:")
        for line in str(error).splitlines():
            complain(f"  {line}")
        sys.exit(2)
    except MonarqError as error:
        complain(str(error))
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
