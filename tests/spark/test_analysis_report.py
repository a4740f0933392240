"""The report as a browser sees it: readable by all, in light and dark, wide and narrow; and
nothing that came from a message is ever more than text."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from monarq.spark.pipelines.analyse.figures import (
    Analysis,
    Answers,
    Change,
    ErrorFigures,
    ErrorSource,
    Finding,
    Severity,
    Window,
)
from monarq.spark.pipelines.analyse.judging import judge
from monarq.spark.pipelines.analyse.report import scales, svg
from monarq.spark.pipelines.analyse.report.page import render
from tests.dashboard.browsing import MISSING, find_chromium, running_browser
from tests.spark.analysis_chaos import HOSTILE
from tests.spark.made_figures import (
    BUCKETS,
    START,
    WINDOW,
    analysis,
    consumers,
    group,
    partition,
    pushes,
    queue,
    series,
    stepped,
    waiting_group,
)

EVIL = (*HOSTILE, "</title></svg><script>document.title='owned'</script>", "<img src=x onerror=a>",
        "x\u2028\x00\x1b[31m", "'" * 40, "a" * 255)  # fmt: skip


def troubled(*names: str) -> Analysis:
    """Every section of a report, for queues of these names."""
    made = analysis(
        id="20260131T143000-ab12cd",
        queues=[queue(name, partitions=9, dead_letters=7) for name in names],
        groups=[
            msgspec.structs.replace(waiting_group(40, 20), queue=name, group=of, consumers=3)
            for name in names
            for of in ("billing", name)
        ],
        deliveries=[
            series(name, of, waiting_p99=stepped((30, 0.5), (30, 8.0)), failed=[1] * BUCKETS,
                   backlog=list(range(BUCKETS)))
            for name in names
            for of in ("billing", name)
        ],
        pushes=[msgspec.structs.replace(pushes((30, 20), (30, 90)), queue=name) for name in names],
        errors=[
            ErrorFigures(queue=name, source=source, error=name, kind=name, count=7, share=1.0,
                         example=name * 2, first_at=START, last_at=START)
            for name in names
            for source in ErrorSource
        ],
        partitions=[
            msgspec.structs.replace(partition(other, 9, 0.4), queue=name)
            for name in names
            for other in names
        ],
        consumers=[
            msgspec.structs.replace(each, queue=name, consumer=name + each.consumer)
            for name in names
            for each in consumers(0.1, 0.9, 0.1)
        ],
        jobs=[],
        scope=list(names[:2]),
    )  # fmt: skip
    before = msgspec.structs.replace(made, id="r1", queues=[queue("gone")], errors=[])
    return judge(made, before)


class Tags(HTMLParser):
    """Which tags a page has, with which attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.ids: list[str] = []
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            self.attributes.add(name)
            if name == "id":
                self.ids.append(value or "")
            elif name in ("href", "src"):
                self.targets.append(value or "")


def tags_of(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    tags.close()
    return tags


def test_names_are_text_and_add_neither_tags_nor_attributes() -> None:
    evil, tame = tags_of(render(troubled(*EVIL))), tags_of(render(troubled("a" * 90, "b")))
    assert evil.tags == tame.tags
    assert evil.attributes == tame.attributes
    assert not evil.tags & {"script", "img", "link", "iframe", "object", "form"}


def test_a_page_needs_nothing_from_anywhere_and_its_ids_are_unique() -> None:
    page = render(troubled(*EVIL))
    tags = tags_of(page)
    assert all(target.startswith("#") for target in tags.targets)
    assert {target[1:] for target in tags.targets} <= set(tags.ids)
    assert len(tags.ids) == len(set(tags.ids))
    assert "url(" not in page
    assert "@import" not in page
    assert "default-src 'none'; style-src 'unsafe-inline'" in page


def test_control_characters_and_turned_text_do_not_reach_the_page() -> None:
    page = render(troubled(*EVIL))
    assert not [one for one in page if not one.isprintable() and one != "\n"]


def test_a_report_without_findings_says_so() -> None:
    assert "Nothing stands out" in render(analysis())


def test_many_findings_and_queues_are_cut_to_what_can_be_read() -> None:
    names = [f"queue-{number}" for number in range(150)]
    made = analysis(
        queues=[queue(name, dead_letters=1) for name in names],
        groups=[group(name) for name in names],
        deliveries=[series(name) for name in names],
        pushes=[msgspec.structs.replace(pushes((60, 20)), queue=name) for name in names],
    )
    page = render(judge(made, None))
    assert "138 more" in page
    assert "100 of 150" in page
    assert "145 others" in page
    assert page.count('<section id="q') == 8
    assert len(page) < 1_000_000


def test_what_was_not_measured_is_not_shown_as_nought() -> None:
    made = analysis(
        queues=[queue(waiting=None, processing=None, answers=Answers())], groups=[], deliveries=[]
    )
    assert '<td class="n">–</td>' in render(made)


def test_unchanged_figures_are_told_as_unchanged() -> None:
    page = render(judge(analysis(), analysis(id="r1")))
    assert "Nothing has doubled or halved since the last analysis" in page


# --- axes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("highest", [0, 0.3, 1, 7, 99, 1_234, 5e7])
def test_counting_ticks_are_round_few_and_reach_over_the_highest(highest: float) -> None:
    scale = scales.counting(highest)
    assert scale.low == 0
    assert scale.high >= highest
    assert 2 <= len(scale.ticks) <= 6
    labels = [label for _, label in scale.ticks]
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize(
    ("lowest", "highest", "labels"),
    [
        (0.1, 0.8, ["0", "200 ms", "400 ms", "600 ms", "800 ms"]),
        (20, 70, ["0", "15 s", "30 s", "45 s", "1 min", "1.25 min"]),
        (0.004, 9, ["1 ms", "10 ms", "100 ms", "1 s", "10 s"]),
        (0.5, 4_000, ["100 ms", "1 s", "10 s", "1 min", "10 min", "1 h", "10 h"]),
    ],
)
def test_duration_ticks_have_units_that_people_use(
    lowest: float, highest: float, labels: list[str]
) -> None:
    scale = scales.lasting(lowest, highest)
    shown = [label for _, label in scale.ticks]
    assert set(shown) <= set(labels)
    assert len(shown) >= 4
    assert scale.low <= lowest
    assert scale.high >= highest
    assert 0 <= scale.place(lowest) < scale.place(highest) <= 1


def test_time_ticks_are_round_and_within_the_window() -> None:
    ticks = scales.times(WINDOW)
    assert [label for _, label in ticks] == ["13:30", "13:40", "13:50", "14:00", "14:10", "14:20",
                                             "14:30"]  # fmt: skip
    assert all(0 <= place <= 1 for place, _ in ticks)


def test_times_below_a_chart_are_not_written_over_each_other() -> None:
    start = 1_794_801_603_000_000
    window = Window(start=start, end=start + 27_000_000, bucket=1_000_000, first=start, last=start)
    drawn = svg.draw(
        svg.Chart("key", "title", window, scales.counting(3.0), (), lambda value: f"{value:g}")
    )
    spans = []
    for x, anchor, label in re.findall(
        r'x="([\d.]+)" y="[\d.]+" text-anchor="(\w+)">(\d\d:\d\d:\d\d)<', drawn
    ):
        width = len(label) * 6
        begin = float(x) - width * {"start": 0, "middle": 0.5, "end": 1}[anchor]
        spans.append((begin, begin + width))
    assert len(spans) > 2
    assert all(left[1] <= right[0] for left, right in pairwise(spans)), spans


# --- in a browser ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if find_chromium() is None:
        pytest.skip(MISSING)
    with running_browser() as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 360)])
def test_everyone_can_read_it(browser: Browser, tmp_path: Path, scheme: str, width: int) -> None:
    file = tmp_path / "report.html"
    file.write_text(render(troubled("orders", "mails", *EVIL)))
    asked: list[str] = []
    said: list[str] = []
    # The checks of axe run in the page, which the page's own policy forbids.
    with browser.new_context(
        bypass_csp=True,
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": width, "height": 900},
    ) as context:
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.title().startswith("Monarq analysis")
        assert page.locator("figure svg").count() >= 10
        results = Axe().run(page)
    assert results.violations_count == 0, results.generate_report()
    assert asked == [file.as_uri()]
    assert said == []


def test_kinds_of_findings_are_told_apart_without_colour() -> None:
    made = [
        Finding(
            severity=severity, kind="k", queue="orders", group=None, text=f"`orders`: {severity}"
        )
        for severity in Severity
    ]
    page = render(msgspec.structs.replace(analysis(), findings=made))
    for severity in Severity:
        assert f'<span class="tag">{severity}</span>' in page


def test_changes_are_told_in_their_units() -> None:
    changes = [
        Change(queue="orders", measure="p99 waiting", unit="s", before=0.2, now=9.0),
        Change(queue="orders", measure="failure rate", unit="share", before=0.0, now=0.25),
        Change(queue="orders", measure="pushes", unit="per second", before=1 / 60, now=2.0),
        Change(queue="new", measure="messages", unit="messages", before=None, now=12_000),
    ]
    page = render(msgspec.structs.replace(
        analysis(), previous="r1", previous_at=START, changes=changes))  # fmt: skip
    cells = re.findall(r'<td class="n">([^<]*)</td>', page.partition("Since the last")[2])
    assert cells[:8] == ["200 ms", "9.0 s", "0 %", "25 %", "1.0 a minute", "120 a minute",
                         "not there", "12,000"]  # fmt: skip
