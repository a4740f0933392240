"""Records, whichever way one comes to them."""

from monarq.client.async_client import AsyncClient


async def test_a_record_that_is_there_stays_if_only_a_new_one_is_to_be_put(
    mq: AsyncClient,
) -> None:
    first = await mq.admin.put_record("note", "n", b"1", only_new=True)
    assert await mq.admin.put_record("note", "n", b"2", only_new=True) == first
    assert await mq.admin.get_record("note", "n") == first
    assert (await mq.admin.put_record("note", "n", b"3")).value == b"3"
