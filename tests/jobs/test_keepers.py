"""Background tasks of a worker outlive their errors."""

import asyncio

import pytest

from monarq.jobs.keepers import keep_running


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("broken"), asyncio.CancelledError("broken"), None]
)
async def test_a_task_that_ends_is_logged_and_started_again(
    caplog: pytest.LogCaptureFixture, error: BaseException | None
) -> None:
    starts = 0
    again = asyncio.Event()

    async def run() -> None:
        nonlocal starts
        starts += 1
        if starts == 3:
            again.set()
            await asyncio.Event().wait()
        if error is not None:
            raise error

    task = asyncio.create_task(keep_running("keeping time", run, pause_seconds=0.0))
    await asyncio.wait_for(again.wait(), 10)
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    for record in caplog.records:
        assert "keeping time" in record.getMessage()
        assert (record.exc_info and record.exc_info[1]) is error
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 10)
