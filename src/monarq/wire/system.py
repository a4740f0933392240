"""The maintenance switches, in and out."""

from __future__ import annotations

from msgspec import Struct

from monarq.wire.status import BufferAnswer


class SwitchBody(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    enabled: bool


class MaintenanceAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    maintenance_mode: bool
    """Pushes go to the buffer files, and are stored when it is switched off."""
    buffered_messages: int
    """Records that wait in the files of the process that answers."""
    buffer_healthy: bool
    buffer_stats: BufferAnswer


class PopMaintenanceAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    pop_maintenance_mode: bool
    """Pops find nothing."""
