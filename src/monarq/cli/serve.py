"""`monarq serve`: a broker with its HTTP API."""

from __future__ import annotations

import logging
from typing import Any

import typer

from monarq.cli.settings_flags import given, with_settings_flags
from monarq.settings_loading import load

logger = logging.getLogger("monarq.settings")


def add_to(app: typer.Typer) -> None:
    app.command("serve")(with_settings_flags(serve))


def serve(flags: dict[str, Any], config: str | None) -> None:
    """Start a broker with its HTTP API.

    Without any option: an embedded SQLite store in the user's data directory, on
    http://127.0.0.1:6632. Each option can also be a variable (--batch-max is MONARQ_BATCH_MAX) or
    stand in the settings file (batch_max = 500); options win over variables, these over the file.
    `monarq config show` tells what is in force.
    """
    loaded = load(given(flags), file=config)
    # Imported here: `--help` and the other commands need no server.
    from monarq.server.exposure import exposed_config
    from monarq.server.logs import configure
    from monarq.server.serving import run

    configure(loaded.settings)
    for warning in (*loaded.warnings, *exposed_config(loaded)):
        logger.warning("%s", warning)
    raise typer.Exit(run(loaded.settings))
