"""Options are checked before anything is touched, and their page says what the code does."""

from pathlib import Path
from typing import Any

import pytest

from monarq.errors import InvalidRequestError
from monarq.spark.bounds import AtSeq, AtTime, Earliest, Exact, Latest, Reached
from monarq.spark.option_table import reference
from monarq.spark.options import READ_OPTIONS, ReadOptions, read_options
from monarq.spark.options_page import options_page
from monarq.spark.positions import write_offset

URL = "http://127.0.0.1:6632"
PAGE = Path(__file__).parent.parent.parent / "docs" / "spark-options.md"


def _read(*, stream: bool | None = None, **options: Any) -> ReadOptions:
    return read_options({"url": URL, "queue": "orders"} | options, stream=stream)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": "ftp://x"}, "option 'url' must be http(s)://… of a broker, postgresql://…"),
        ({"url": "memory:"}, "option 'url' must be"),
        ({"url": "sqlite://x.db"}, "option 'url' must be"),
        ({"url": "http://"}, "option 'url' must be"),
        ({"quee": "x"}, "there is no option 'quee'; did you mean 'queue'?"),
        ({"zzz": "x"}, "there is no option 'zzz'; there are url, token, "),
        ({"path": "x"}, "the data source takes no path: name the broker or store by the option"),
        ({"queues": "a,b"}, "option 'queue' cannot be used together with 'queues'"),
        ({"queuePattern": "a*"}, "option 'queuePattern' cannot be used together with 'queue(s)'"),
        ({"partition": "a", "partitions": "b"}, "option 'partition' cannot be used together"),
        ({"partitions": "a,,b"}, "option 'partitions' must be names, separated by commas"),
        ({"partitions": "[1]"}, "option 'partitions' must be names"),
        ({"partitions": "[]"}, "option 'partitions' must be names"),
        ({"table": "rows"}, "option 'table' must be messages, items, deliveries, dead_letters, "),
        ({"startingOffsets": "soon"}, "option 'startingOffsets' must be earliest, latest, a time"),
        ({"startingOffsets": "-1"}, "option 'startingOffsets' must be"),
        ({"startingOffsets": "2026-01-31T12:00:00"}, "option 'startingOffsets' must be"),
        ({"startingOffsets": '{"orders": 1}'}, "option 'startingOffsets' must be"),
        ({"startingOffsets": '{"orders": {"p": "1"}}'}, "option 'startingOffsets' must be"),
        ({"startingOffsets": "{"}, "option 'startingOffsets' must be"),
        ({"endingOffsets": '{"version": 9, "table": "messages"}'}, "an offset of version 9"),
        ({"minSplits": "0"}, "option 'minSplits' must be a number from 1 to 100000: '0' is not"),
        ({"messagesPerSplit": "many"}, "option 'messagesPerSplit' must be a number from 1"),
        ({"failOnDataLoss": "maybe"}, "option 'failOnDataLoss' must be true, false: 'maybe' is"),
        ({"pollIntervalMs": "1"}, "option 'pollIntervalMs' must be a number from 10 to 3600000"),
        ({"token": ""}, "option 'token' must be a token or an API key: it is not"),
        (
            {"table": "attempts", "partition": "p"},
            "option 'partition' is for table messages only, not for attempts",
        ),
        (
            {"table": "queues", "startingOffsets": "latest"},
            "option 'startingOffsets' is not for table queues: it is read as it is now",
        ),
        (
            {"table": "attempts", "endingOffsets": "7"},
            "option 'endingOffsets' must be earliest, latest or a time for table attempts",
        ),
    ],
)
def test_a_wrong_option_is_named_with_what_is_allowed(options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        read_options({"url": URL, "queue": "orders"} | options)
    assert said in str(raised.value)


@pytest.mark.parametrize("missing", ["url", "queue"])
def test_what_is_needed_is_asked_for(missing: str) -> None:
    given = {"url": URL, "queue": "orders"}
    del given[missing]
    with pytest.raises(InvalidRequestError, match=f"option '{missing}' is missing: the"):
        read_options(given)


def test_what_is_for_streams_or_for_batches_alone_is_refused_by_the_other() -> None:
    with pytest.raises(InvalidRequestError, match="'maxMessagesPerTrigger' is for streams only"):
        _read(stream=False, maxMessagesPerTrigger="5")
    with pytest.raises(InvalidRequestError, match="'endingOffsets' is for batch reads only"):
        _read(stream=True, endingOffsets="latest")
    with pytest.raises(InvalidRequestError, match="'table': items cannot be read as a stream"):
        _read(stream=True, table="items")
    assert _read(stream=True, maxMessagesPerTrigger="5").max_messages_per_trigger == 5


def test_names_are_taken_in_any_case() -> None:
    assert _read(FAILONDATALOSS="False").fail_on_data_loss is False


def test_offsets_are_read_as_what_they_say() -> None:
    def bound(text: str) -> object:
        return _read(startingOffsets=text).starting

    assert bound("earliest") == Earliest()
    assert bound(" latest ") == Latest()
    assert bound("17") == AtSeq(17)
    assert bound("1970-01-01T00:00:01Z") == AtTime(1_000_000)
    assert bound('{"orders": {"p": 3}}') == Exact({"orders": {"p": 3}})
    offset = write_offset({"orders": {5: 9}})
    assert bound(str(offset).replace("'", '"')) == Reached({"orders": {5: 9}})


def test_a_relative_file_is_the_same_one_on_every_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _read(url="sqlite:///x.db").url == f"sqlite:///{tmp_path / 'x.db'}"


def test_a_token_is_taken_from_the_environment_for_brokers_and_never_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MONARQ_TOKEN", "open-sesame")
    options = _read()
    assert options.token == "open-sesame"
    assert "open-sesame" not in repr(options)
    assert _read(url="postgresql://user:pw@host/db").token is None
    assert _read(token="other").token == "other"


def test_the_page_is_that_of_the_code() -> None:
    assert PAGE.read_text() == options_page(), (
        "write it anew: python -m monarq.spark.options_page > docs/spark-options.md"
    )


def test_every_option_is_on_the_page() -> None:
    assert reference(READ_OPTIONS) in options_page()
    for option in READ_OPTIONS:
        assert f"| `{option.name}` |" in PAGE.read_text()
