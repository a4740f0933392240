"""Values and payloads of rows as JSON text, exactly, or refused."""

import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import example, given

from monarq.errors import InvalidRequestError
from monarq.spark.json_texts import json_object
from monarq.spark.sink_rows import checked_json

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def objects(**columns: Any) -> list[Any]:
    texts = json_object(list(columns), [pa.array(column) for column in columns.values()])
    return [json.loads(text) for text in texts.to_pylist()]


class TestJson:
    def test_every_kind_of_value_is_what_it_was(self) -> None:
        at = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
        [row] = objects(
            text=['"quoted" \\ and \n\t\x00 and ü🐝'],
            number=[-(2**63)],
            yes=[True],
            half=[0.1],
            money=pa.array([Decimal("12.30")], pa.decimal128(10, 2)),
            at=pa.array([at], pa.timestamp("us", "UTC")),
            local=pa.array([at.replace(tzinfo=None)], pa.timestamp("us")),
            day=[at.date()],
            deep=[{"a": {"b": "c"}, "none": None}],
            many=[[{"at": at, "none": None}, {"at": at, "none": 1}]],
            raw=[b"\x00\xff"],
            named=pa.array([[("k", 1), ("l", None)]], pa.map_(pa.string(), pa.int64())),
        )
        time = "2026-01-02T03:04:05.678901"
        assert row == {
            "text": '"quoted" \\ and \n\t\x00 and ü🐝',
            "number": -(2**63),
            "yes": True,
            "half": 0.1,
            "money": 12.3,
            "at": time + "Z",
            "local": time,
            "day": "2026-01-02",
            "deep": {"a": {"b": "c"}},
            "many": [{"at": time + "Z"}, {"at": time + "Z", "none": 1}],
            "raw": "AP8=",
            "named": {"k": 1},
        }

    def test_what_is_null_is_left_out(self) -> None:
        rows = objects(a=[None, 1, None], b=["x", None, None], c=[None, None, None])
        assert rows == [{"b": "x"}, {"a": 1}, {}]

    def test_numbers_that_json_does_not_have_are_text(self) -> None:
        rows = objects(x=[math.nan, math.inf, -math.inf, 1.5, None])
        assert [row.get("x") for row in rows] == ["NaN", "Infinity", "-Infinity", 1.5, None]

    def test_a_struct_that_is_null_is_left_out_whatever_lies_beneath_it(self) -> None:
        inner = pa.StructArray.from_arrays([pa.array([1, 2])], ["n"], mask=pa.array([False, True]))
        texts = json_object(["s"], [inner]).to_pylist()
        assert texts == ['{"s":{"n":1}}', "{}"]

    @given(st.lists(st.tuples(TEXT, st.floats(allow_nan=False, allow_infinity=False)), min_size=1))
    def test_any_text_and_number_survives(self, rows: list[tuple[str, float]]) -> None:
        found = objects(t=[text for text, _ in rows], f=[number for _, number in rows])
        assert [(row["t"], row["f"]) for row in found] == rows

    @given(st.lists(TEXT, min_size=1, max_size=5))
    @example(["\x0c1"])
    @example(["1\x0b"])
    @example([" \t\r\n1\n"])
    @example(['"\\ud800"'])
    def test_any_text_as_payload_is_taken_exactly_if_it_is_json(self, texts: list[str]) -> None:
        def is_json(text: str) -> bool:
            try:
                value = json.loads(text, parse_constant=lambda _: 1 / 0)
                json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text
            except (ValueError, ZeroDivisionError):
                return False
            return True

        good = all(is_json(text) for text in texts)
        try:
            checked_json(pa.array(texts))
        except InvalidRequestError:
            assert not good
        else:
            assert good

    @pytest.mark.parametrize(
        "texts",
        [
            ['1,"priority":5'],
            ['1},{"queue":"other","payload":2'],
            ['"a', 'b"', "1,2"],
            ["[1", "2]"],
            [""],
            ["1]", "[2"],
            ["nul"],
            ["{}x"],
        ],
    )
    def test_a_payload_cannot_reach_into_the_request(self, texts: list[str]) -> None:
        with pytest.raises(InvalidRequestError, match="payload is not JSON"):
            checked_json(pa.array(["0", *texts, "1"]))
