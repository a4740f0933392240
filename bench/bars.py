"""What a benchmark aims at, and whether it got there: printed, and kept with the results."""

from __future__ import annotations

from typing import Any, NamedTuple

from bench.harness import progress, table


class Bar(NamedTuple):
    name: str
    measured: str
    wanted: str
    met: bool


class Bars:
    def __init__(self) -> None:
        self._bars: list[Bar] = []

    def at_least(self, name: str, value: float, wanted: float, unit: str = "") -> None:
        self._add(Bar(name, _text(value, unit), f"≥ {_text(wanted, unit)}", value >= wanted))

    def at_most(self, name: str, value: float, wanted: float, unit: str = "") -> None:
        self._add(Bar(name, _text(value, unit), f"≤ {_text(wanted, unit)}", value <= wanted))

    def _add(self, bar: Bar) -> None:
        self._bars.append(bar)
        progress(f"  {bar.name}: {bar.measured}")

    def __bool__(self) -> bool:
        return bool(self._bars)

    def table(self) -> str:
        rows = [(*bar[:3], "met" if bar.met else "MISSED") for bar in self._bars]
        return table(("bar", "measured", "wanted", ""), rows)

    def as_json(self) -> list[dict[str, Any]]:
        return [bar._asdict() for bar in self._bars]


def _text(value: float, unit: str) -> str:
    number = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return f"{number} {unit}" if unit else number
