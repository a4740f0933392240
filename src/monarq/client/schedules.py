"""Schedules: what is to be enqueued at certain times."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from monarq.errors import InvalidRequestError
from monarq.model import PushItem
from monarq.store.validation import check_name


class Schedule:
    """`make_item` gives what to push at a tick, with the transaction id it is given."""

    def __init__(
        self,
        name: str,
        expression: str,
        make_item: Callable[[str], PushItem],
        *,
        zone: str = "UTC",
        commands: bool = False,
    ) -> None:
        check_name(name, "name")
        for text, field in ((expression, "a cron expression"), (zone, "a time zone")):
            if not isinstance(text, str):
                raise InvalidRequestError(f"schedule {name!r}: {field} must be text")
        self.name = name
        self.expression = expression
        self.zone = zone
        self.make_item = make_item
        self.commands = commands
        self._zone = _zone(zone)
        self.next_after(datetime.now(UTC))  # a bad expression is refused here

    def next_after(self, moment: datetime) -> datetime:
        """The first tick behind a moment."""
        try:
            return next(CronSim(self.expression, moment.astimezone(self._zone))).astimezone(UTC)
        except CronSimError as error:
            raise InvalidRequestError(
                f"schedule {self.name!r}: {self.expression!r} is not a cron expression: {error}"
            ) from None
        except StopIteration:
            raise InvalidRequestError(
                f"schedule {self.name!r}: {self.expression!r} never comes"
            ) from None

    def last_until(self, moment: datetime, since: datetime) -> datetime | None:
        """The last tick up to a moment, if there is one behind `since`."""
        last = None
        tick = self.next_after(since)
        while tick <= moment:
            last = tick
            tick = self.next_after(tick)
        return last

    def transaction_id(self, tick: datetime) -> str:
        return f"cron:{self.name}:{tick.strftime('%Y-%m-%dT%H:%M:%SZ')}"


def _zone(name: str) -> tzinfo:
    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # such as a directory of zones
        raise InvalidRequestError(f"there is no time zone {name!r}") from None
