"""What the dashboard tells of the system, and how often it asks the store."""

import asyncio

from tests.server.application import Api
from tests.server.board import BOARD, board


async def test_the_system_tells_how_the_store_and_the_process_fare(api: Api) -> None:
    await api.push_payloads("q", 1)
    told = (await api.get(f"{BOARD}/system")).json
    assert told["store"]["figures"]["databaseBytes"] > 0
    assert {line["call"] for line in told["calls"]} == {
        "push", "pop", "ack", "renew", "transaction"}  # fmt: skip
    push = next(line for line in told["calls"] if line["call"] == "push")
    assert (push["calls"], push["p50"] is not None) == (1, True)
    api.service.slow.note(None, 200, 2.5)
    told = (await api.get(f"{BOARD}/system")).json
    assert [(line["what"], line["seconds"]) for line in told["slow"]] == [("no route", 2.5)]


async def test_settings_are_shown_without_a_secret(memory_api: Api) -> None:
    object.__setattr__(
        memory_api.service,
        "settings",
        type(memory_api.service.settings)(
            store="postgresql://ann:hush@db/x",
            jwt_secret="hush hush hush hush hush hush hush",
            peer_key="hush",
        ),
    )
    answer = await memory_api.get(f"{BOARD}/settings")
    assert b"hush" not in answer.body
    rows = {row["name"]: row for row in answer.json["settings"]}
    assert rows["jwt_secret"]["value"] == "set"
    assert rows["encryption_keys"]["value"] == ""
    assert rows["store"]["value"] == "postgresql://ann:***@db/x"
    assert rows["port"]["isDefault"] is True


async def test_the_store_is_looked_at_once_for_all_who_ask_at_the_same_time(api: Api) -> None:
    await asyncio.gather(*(api.get(f"{BOARD}/overview") for _ in range(20)))
    assert api.service.sampler.sight.view.version <= 2


async def test_what_is_pushed_while_nobody_looks_is_there_when_somebody_does(api: Api) -> None:
    for name in ("one", "two"):
        await api.push_payloads(name, 1)
        assert (await board(api, f"queues/{name}"))["line"]["pending"] == 1
