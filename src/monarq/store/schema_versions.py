"""The errors that both stores raise if the schema is not one that this Monarq can use."""

from __future__ import annotations

from monarq.errors import SchemaVersionError


def newer(store: str, version: int, known: int) -> SchemaVersionError:
    return SchemaVersionError(
        f"{store} has schema version {version}, and this Monarq knows {known}: upgrade Monarq"
    )


def older(store: str, version: int) -> SchemaVersionError:
    return SchemaVersionError(
        f"{store} has schema version {version}, which is too old for this Monarq to upgrade: write "
        "its queues to a file with the Monarq that made it (monarq export), and read the file into "
        "a new store with this one (monarq import)"
    )
