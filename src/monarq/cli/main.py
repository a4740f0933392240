"""The command `monarq`: puts the groups together, and turns errors into messages and exit codes.

| exit code | means |
|---|---|
| 0 | done |
| 1 | refused or failed; stderr says why |
| 2 | wrong usage or settings |
| 130 | interrupted |
"""

from __future__ import annotations

import importlib
import sys

import typer

from monarq.cli.messages import complain
from monarq.errors import MonarqError, SettingsError

#: The module of each command, in the order in which help shows them. Only the one that is
#: called is imported: a shell user waits for every import.
COMMANDS = {
    "enqueue": "jobs",
    "list": "jobs",
    "show": "jobs",
    "logs": "jobs",
    "cancel": "jobs",
    "retry": "jobs",
    "status": "jobs",
    "clear": "jobs",
    "worker": "workers",
    "dlq": "dead_letters",
    "serve": "serve",
    "config": "config",
    "api-key": "api_keys",
    "buffer": "buffer",
    "bench": "bench",
}


def make_app(command: str | None = None) -> typer.Typer:
    """The whole command line, or as much of it as a command needs."""
    app = typer.Typer(
        name="monarq",
        help="One broker for messages and jobs, on SQLite or PostgreSQL.",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    wanted = COMMANDS.get(command or "")
    modules = [wanted] if wanted else dict.fromkeys(COMMANDS.values())
    for module in modules:
        importlib.import_module(f"monarq.cli.{module}").add_to(app)
    app.callback()(_options)
    app.command("version")(version)
    return app


def _options(
    show_version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", is_eager=True
    ),
) -> None:
    if show_version:
        version()
        raise typer.Exit


def version() -> None:
    """Print the version."""
    from monarq import __version__

    print(__version__)


def main() -> None:
    """The script's entry point."""
    named = next((word for word in sys.argv[1:] if not word.startswith("-")), None)
    if sys.argv[1:] == ["--version"]:
        version()
        return
    try:
        make_app(named)()
    except SettingsError as error:
        complain("the settings cannot be used:")
        for line in str(error).splitlines():
            complain(f"  {line}")
        sys.exit(2)
    except MonarqError as error:
        complain(str(error))
        sys.exit(1)
    except BrokenPipeError:
        # Whoever read our answer has had enough of it.
        sys.stderr.close()
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
