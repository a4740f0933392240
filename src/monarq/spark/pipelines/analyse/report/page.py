"""The report: findings first, then the figures behind them. One page that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources

from monarq.spark.pipelines.analyse import wording
from monarq.spark.pipelines.analyse.figures import Analysis, Finding, QueueFigures, Spread, Window
from monarq.spark.pipelines.analyse.report import charts, figure_tables
from monarq.spark.pipelines.analyse.report.markup import code, sentence, text
from monarq.spark.pipelines.analyse.report.svg import Chart, draw

#: Findings that are shown at once, and queues that get charts of their own.
_MOST_FINDINGS = 12
_MOST_QUEUES = 8

#: Nothing may be loaded or run, whoever opens the file.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def render(analysis: Analysis) -> str:
    style = resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Monarq analysis, {text(wording.full_time(analysis.generated_at))}</title>"
        f"<style>{style}</style></head>\n<body><main>{_body(analysis)}</main></body></html>\n"
    )


def _body(analysis: Analysis) -> str:
    window = analysis.window
    if window is None:
        return (
            f"{_header(analysis)}<p class='card good'>There is nothing to look at: no message, "
            "delivery, dead letter or attempt in this time and these queues is in the lake.</p>"
        )
    shown = _shown(analysis)
    return "\n".join(
        part
        for part in (
            _header(analysis),
            _findings(analysis, shown),
            _tiles(analysis, window),
            "<h2>All queues</h2>",
            _charts(charts.overview(analysis)),
            figure_tables.queues(analysis),
            figure_tables.groups(analysis),
            figure_tables.jobs(analysis),
            figure_tables.changes(analysis),
            *(_queue(analysis, queue, place) for place, queue in enumerate(shown)),
            _footer(analysis, window),
        )
        if part
    )


def _header(analysis: Analysis) -> str:
    window = analysis.window
    scope = f" · only {', '.join(map(code, analysis.scope))}" if analysis.scope else ""
    when = (
        f"{text(wording.period(window.first, window.last))} "
        f"({text(wording.duration((window.last - window.first) / 1e6))})"
        if window
        else "nothing in the lake"
    )
    return (
        f"<header><h1>What passed through the queues</h1><p class='soft'>{when}{scope}<br>"
        f"Analysis {code(analysis.id)} of {code(analysis.lake)}, made "
        f"{text(wording.full_time(analysis.generated_at))}</p></header>"
    )


def _shown(analysis: Analysis) -> list[QueueFigures]:
    """The queues with charts: those with findings first, then the busiest."""
    ranks: dict[str, int] = {}
    for place, finding in enumerate(analysis.findings):
        ranks.setdefault(finding.queue, place)
    last = len(analysis.findings)
    order = sorted(analysis.queues, key=lambda queue: ranks.get(queue.queue, last))
    return order[:_MOST_QUEUES]


def _findings(analysis: Analysis, shown: Sequence[QueueFigures]) -> str:
    places = {queue.queue: place for place, queue in enumerate(shown)}
    found = analysis.findings
    if not found:
        listed = (
            "<p class='card good'>Nothing stands out: no dead letters, no backlog, no failures "
            "above the usual, no change of level.</p>"
        )
    else:
        listed = _list(found[:_MOST_FINDINGS], places)
    more = found[_MOST_FINDINGS:]
    if more:
        listed += f"<details><summary>{len(more)} more</summary>{_list(more, places)}</details>"
    return f"<section><h2>Findings</h2>{listed}</section>"


def _list(findings: Sequence[Finding], places: dict[str, int]) -> str:
    items = []
    for finding in findings:
        told = sentence(finding.text)
        if finding.queue in places:
            told = f'<a href="#q{places[finding.queue]}">{told}</a>'
        items.append(
            f'<li class="{finding.severity}"><span class="tag">{text(finding.severity)}</span>'
            f"<span>{told}.</span></li>"
        )
    return f'<ol class="findings">{"".join(items)}</ol>'


def _tiles(analysis: Analysis, window: Window) -> str:
    totals, answers = analysis.totals, analysis.totals.answers
    seconds = max((window.last - window.first) / 1e6, 1.0)
    tiles = [
        (
            "messages and items",
            wording.short_count(totals.messages),
            wording.rate(totals.messages / seconds),
        ),
        (
            "deliveries",
            wording.short_count(answers.answered),
            f"{wording.share(answers.failure_rate)} failed" if answers.answered else "",
        ),
        (
            "dead letters",
            wording.short_count(totals.dead_letters),
            f"{wording.share(totals.dead_letters / totals.messages)} of all"
            if totals.messages
            else "",
        ),
        ("not yet delivered", wording.short_count(totals.backlog), "at the end"),
        _longest("p99 waiting", {each.queue: each.waiting for each in analysis.queues}),
        _longest("p99 processing", {each.queue: each.processing for each in analysis.queues}),
    ]
    inner = "".join(
        f"<div><dt>{text(name)}</dt><dd>{text(value)}<small>{text(more, 40)}</small></dd></div>"
        for name, value, more in tiles
    )
    return f'<dl class="tiles">{inner}</dl>'


def _longest(name: str, spreads: Mapping[str, Spread | None]) -> tuple[str, str, str]:
    known = [(spread.p99, queue) for queue, spread in spreads.items() if spread]
    if not known:
        return name, "–", ""
    longest, queue = max(known)
    return name, wording.duration(longest), f"longest: {queue}"


def _charts(found: Sequence[Chart]) -> str:
    if not found:
        return ""
    return f'<div class="charts">{"".join(map(_figure, found))}</div>'


def _figure(chart: Chart) -> str:
    legend = "".join(
        f'<li title="{text(line.name)}"><i class="{line.style}"></i>'
        f"<span>{text(line.name, 60)}</span></li>"
        for line in chart.lines
    )
    return (
        f'<figure class="card"><h3>{text(chart.title)}</h3><ul class="legend">{legend}</ul>'
        f"{draw(chart)}</figure>"
    )


def _queue(analysis: Analysis, queue: QueueFigures, place: int) -> str:
    parts = [
        f'<section id="q{place}"><h2>Queue {code(queue.queue)}</h2>',
        _charts(charts.of_queue(f"q{place}", analysis, queue)),
        figure_tables.errors(analysis, queue),
        figure_tables.partitions(analysis, queue),
        figure_tables.consumers(analysis, queue),
        "</section>",
    ]
    return "".join(parts)


def _footer(analysis: Analysis, window: Window) -> str:
    bucket = wording.duration(window.bucket_seconds)
    notes = {
        "Waiting": "from the push of a message to its first delivery to a group. In charts, a "
        "message counts at the time of that delivery.",
        "Processing": "from the lease to the answer, for each message answered. Leases that ran "
        "out are not counted: they tell how long leases are.",
        "Failed": "failed, dead or expired, as a part of all that was answered. What was "
        "released or cancelled counts as neither.",
        "Not yet delivered": "messages behind the last one that a group was ever given in their "
        "partition. A partition that a group was given nothing of waits for it whole.",
        "Rose, fell": "the level before and after are medians over at least six buckets, differ "
        "at least by a factor of two, and four fifths of the buckets of one lie beyond four "
        "fifths of the other. A single spike is no change.",
        "Errors": "with ids, numbers and quoted values left out, so that the same error counts "
        "as the same.",
        "Percentiles": f"{analysis.percentiles}. A bucket is {bucket} long. All times are UTC.",
    }
    listed = "".join(f"<dt>{text(name)}</dt><dd>{text(note)}</dd>" for name, note in notes.items())
    return f"<footer><h2>How this was measured</h2><dl>{listed}</dl></footer>"
