"""SQLite files as an earlier version of Monarq left them: the steps of the schema, undone."""

import sqlite3
from pathlib import Path

from monarq.store.sqlite import migrations

#: What undoes each step, from the first one that a test needs.
_UNDO = {
    9: """
        drop index cursors_leased;
        alter table cursors drop column lease_spread;
        create index cursors_leased on cursors (lease_no, lease_until)
            where lease_until is not null;
        update cursors set lease_token = substr(lease_token, 1, 16);
    """,
    10: """
        drop index cursors_to_check;
        alter table cursors drop column check_at;
        create index cursors_expiring on cursors (lease_until, partition_id, group_id)
            where lease_until is not null;
    """,
    11: "alter table cursors drop column lost_lease_no;",
    12: "alter table items drop column is_command;",
    13: "alter table outputs drop column sealed;",
    14: """
        alter table cursors drop column lease_of_one;
        alter table unresolved drop column lease_limit;
    """,
    15: "alter table cursors drop column lost_before_no;",
    16: """
        drop index groups_being_made;
        alter table groups drop column joined_to;
    """,
}


def set_back(path: Path | str, version: int) -> None:
    """Undo all steps after this one, in a file that nobody has open."""
    script = "".join(_UNDO[step] for step in range(len(migrations._steps()), version, -1))
    file = sqlite3.connect(path)
    file.executescript(f"{script}; pragma user_version = {version}")
    file.close()
