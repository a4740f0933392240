"""Queues as the published client makes, configures and deletes them."""

from typing import Any

import pytest

from tests.interop.verbs import data, pop, push

#: What `create()` sends for what it is not told.
CLIENT_DEFAULTS = {
    "leaseTime": 300,
    "retryLimit": 3,
    "priority": 0,
    "delayedProcessing": 0,
    "windowBuffer": 0,
    "maxSize": 0,
    "retentionSeconds": 0,
    "completedRetentionSeconds": 0,
    "encryptionEnabled": False,
}


async def test_create_makes_a_queue_with_the_clients_defaults(queen: Any, name: str) -> None:
    answer = await queen.queue(name).create()
    assert answer["configured"] is True
    assert answer["queue"] == name
    assert answer["kind"] == "ordered"
    assert answer["options"].items() >= CLIENT_DEFAULTS.items()


async def test_create_takes_options_in_either_spelling(queen: Any, name: str) -> None:
    options = {"lease_time": 7.5, "retryLimit": 9, "retry_delay": 20, "dlqAfterMaxRetries": False}
    answer = await queen.queue(name).config(options).create()
    expected = {"leaseTime": 7.5, "retryLimit": 9, "retryDelay": 20, "dlqAfterMaxRetries": False}
    assert answer["options"].items() >= expected.items()
    assert (await queen.admin.get_queue(name))["options"].items() >= expected.items()


async def test_create_again_changes_what_it_names_and_keeps_the_messages(
    queen: Any, name: str
) -> None:
    await queen.queue(name).config({"retry_delay": 20}).create()
    await push(queen, name, "kept")
    answer = await queen.queue(name).config({"lease_time": 8}).create()
    assert answer["options"]["leaseTime"] == 8
    assert answer["options"]["retryDelay"] == 20
    assert data(await pop(queen, name)) == ["kept"]


async def test_an_option_that_means_nothing_here_is_named_as_ignored(queen: Any, name: str) -> None:
    answer = await queen.queue(name).config({"ttl": 3600}).create()
    assert answer["ignored"] == ["ttl"]


async def test_a_misspelt_option_is_refused_by_name(queen: Any, name: str) -> None:
    with pytest.raises(Exception, match="leaseTiem"):
        await queen.queue(name).config({"lease_tiem": 8}).create()
    with pytest.raises(Exception, match=name):
        await queen.admin.get_queue(name)


async def test_an_option_out_of_range_is_refused_by_name(queen: Any, name: str) -> None:
    told: list[Exception] = []

    async def tell(error: Exception) -> None:
        told.append(error)

    await queen.queue(name).config({"retry_limit": -1}).create().on_error(tell)
    assert "retryLimit" in str(told[0])


async def test_namespace_and_task_label_a_queue(queen: Any, name: str) -> None:
    answer = await queen.queue(name).namespace(f"{name}-ns").task(f"{name}-task").create()
    assert (answer["namespace"], answer["task"]) == (f"{name}-ns", f"{name}-task")
    again = await queen.queue(name).create()
    assert (again["namespace"], again["task"]) == (f"{name}-ns", f"{name}-task")
    assert f"{name}-ns" in str(await queen.admin.get_namespaces())
    assert f"{name}-task" in str(await queen.admin.get_tasks())


async def test_delete_removes_a_queue_with_its_messages(queen: Any, name: str) -> None:
    await push(queen, name, 1, 2)
    answer = await queen.queue(name).delete()
    assert answer["deleted"] is True
    with pytest.raises(Exception, match=name):
        await queen.admin.get_queue(name)
    assert await pop(queen, name) == []


async def test_deleting_a_queue_that_does_not_exist_is_no_error(queen: Any, name: str) -> None:
    answer = await queen.queue(name).delete()
    assert answer["deleted"] is False


@pytest.mark.parametrize(
    "special", ["with space", "100% sure", "ünï→😀", "semi;colon&co=1+2", "a:b@c"]
)
async def test_a_name_that_can_be_pushed_to_can_be_popped_from(
    queen: Any, name: str, special: str
) -> None:
    queue, partition = f"{name} {special}", f"{special} partition"
    await push(queen, queue, "here", partition=partition)
    [message] = await queen.queue(queue).partition(partition).wait(False).batch(5).pop()
    assert (message["data"], message["partition"]) == ("here", partition)
    assert (await queen.ack(message))["success"]
    assert (await queen.admin.get_queue(queue))["name"] == queue
    assert (await queen.queue(queue).delete())["deleted"] is True
