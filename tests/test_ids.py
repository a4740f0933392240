"""Ids of messages and leases: what is one, what is not, and that they cannot be guessed."""

import pytest

from monarq.errors import LeaseUnknownError
from monarq.ids import (
    is_lease_id,
    lease_id,
    message_id,
    message_ids,
    new_lease_token,
    parse_lease_id,
    parse_message_id,
)


@pytest.mark.parametrize("partition_id", [1, 7, 10**17])
@pytest.mark.parametrize("seq", [1, 9, 10**17])
def test_a_message_id_names_its_partition_and_seq_and_reads_back(
    partition_id: int, seq: int
) -> None:
    assert message_id(partition_id, seq) == f"{partition_id}-{seq}"
    assert parse_message_id(message_id(partition_id, seq)) == (partition_id, seq)


@pytest.mark.parametrize("first_seq", [1, 9, 990, 999, 1000, 1001, 9_999, 123_456, 10**17 - 1])
@pytest.mark.parametrize("count", [0, 1, 2, 1000, 2500])
def test_the_ids_of_messages_in_a_row_are_the_ids_of_each(first_seq: int, count: int) -> None:
    seqs = range(first_seq, first_seq + count)
    assert message_ids(12, first_seq, count) == [message_id(12, seq) for seq in seqs]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "1",
        "1-",
        "-1",
        "0-1",
        "1-0",
        "01-1",
        "1-01",
        "1--1",
        "+1-1",
        "1-1 ",
        " 1-1",
        "1-1\n",
        "1-1-1",
        "1.0-1",
        "1_0-1",
        "a-1",
        "١-١",  # digits to Python's int(), not to us
        "1" * 19 + "-1",
        "1-" + "1" * 19,
        "order-17",
    ],
)
def test_what_only_resembles_a_message_id_is_not_taken_for_one(text: str) -> None:
    assert parse_message_id(text) is None


def test_a_lease_id_reads_back_as_its_number_and_token() -> None:
    token = new_lease_token()
    assert parse_lease_id(lease_id(42, token)) == (42, token)


def test_lease_tokens_have_64_random_bits_and_do_not_repeat() -> None:
    tokens = {new_lease_token() for _ in range(1_000)}
    assert len(tokens) == 1_000
    assert {len(token) for token in tokens} == {16}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1-",
        "-0123456789abcdef",
        "0-0123456789abcdef",
        "01-0123456789abcdef",
        "1-0123456789abcde",
        "1-0123456789abcdef0",
        "1-0123456789ABCDEF",
        "1-0123456789abcdeg",
        "1-0123456789abcdef\n",
        "1" * 19 + "-0123456789abcdef",
        "١-0123456789abcdef",
        "made up",
    ],
)
def test_a_made_up_lease_id_is_an_unknown_lease_not_a_crash(text: str) -> None:
    with pytest.raises(LeaseUnknownError):
        parse_lease_id(text)


def test_the_error_about_a_lease_id_does_not_repeat_a_whole_megabyte_of_it() -> None:
    with pytest.raises(LeaseUnknownError) as caught:
        parse_lease_id("x" * 1_000_000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("value", ["", "1", "x", "1-" + "0" * 15, "0-" + "0" * 16, None, 7, ["1"]])
def test_what_is_no_lease_id_is_told_without_an_error(value: object) -> None:
    assert not is_lease_id(value)
    assert is_lease_id(lease_id(1, new_lease_token()))
