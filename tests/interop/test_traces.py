"""Traces that the published client records and reads."""

from typing import Any

from tests.interop.verbs import push


async def _traced(queen: Any, name: str, *traces: dict[str, Any]) -> tuple[Any, list[Any]]:
    """Consume one message and trace it; the message, and what the traces answered."""
    await push(queen, name, {"order": 1})
    answers: list[Any] = []
    messages: list[Any] = []

    async def handle(message: dict[str, Any]) -> None:
        messages.append(message)
        answers.extend([await message["trace"](trace) for trace in traces])

    await queen.queue(name).group(name).batch(1).limit(1).consume(handle)
    return messages[0], answers


async def test_a_message_has_its_traces_in_order(queen: Any, name: str) -> None:
    message, answers = await _traced(
        queen,
        name,
        {"data": {"text": "started"}},
        {"data": {"text": "done", "n": 2}, "eventType": "processing", "traceName": f"{name}/x"},
    )
    assert [answer["success"] for answer in answers] == [True, True]
    found = await queen.admin.get_traces_for_message(
        message["partitionId"], message["transactionId"]
    )
    assert [
        (trace["eventType"], trace["data"], trace["traceNames"]) for trace in found["traces"]
    ] == [
        ("info", {"text": "started"}, []),
        ("processing", {"text": "done", "n": 2}, [f"{name}/x"]),
    ]


async def test_traces_are_found_by_each_of_their_names(queen: Any, name: str) -> None:
    names = [f"{name}-tenant", f"{name} order 1"]
    message, _ = await _traced(queen, name, {"data": {"n": 1}, "traceName": names})
    for trace_name in names:
        [trace] = (await queen.admin.get_traces_by_name(trace_name))["traces"]
        assert trace["data"] == {"n": 1}
        assert trace["transactionId"] == message["transactionId"]
        assert trace["partitionId"] == message["partitionId"]
    assert (await queen.admin.get_traces_by_name(f"{name}-nothing"))["traces"] == []


async def test_traces_by_name_come_in_pages(queen: Any, name: str) -> None:
    traces = [{"data": {"n": n}, "traceName": name} for n in range(5)]
    await _traced(queen, name, *traces)
    pages = [
        [
            trace["data"]["n"]
            for trace in (await queen.admin.get_traces_by_name(name, limit=2, offset=offset))[
                "traces"
            ]
        ]
        for offset in (0, 2, 4)
    ]
    assert pages == [[0, 1], [2, 3], [4]]


async def test_the_names_of_traces_are_listed(queen: Any, name: str) -> None:
    await _traced(queen, name, {"data": 1, "traceName": [f"{name}-a", f"{name}-b"]})
    listed = await queen.admin.get_trace_names(limit=1000)
    names = {row["traceName"] for row in listed["traceNames"]}
    assert {f"{name}-a", f"{name}-b"} <= names
