"""Types of fields whose JSON form differs from their Python form."""

import re

import msgspec
import pytest

from monarq.errors import InvalidRequestError
from monarq.ids import LongNumberText, NumberText
from monarq.model.queue_options import OptionChanges
from monarq.operations.codec import decode, encode, schema_hook


@pytest.mark.parametrize(("kind", "most"), [(NumberText, 10**18 - 1), (LongNumberText, 2**63 - 1)])
def test_the_largest_id_of_each_kind_is_read_back(kind: type[NumberText], most: int) -> None:
    text = encode(kind(most))
    assert text == b'"%d"' % most
    assert decode(text, kind) == most
    assert re.fullmatch(schema_hook(kind)["pattern"], str(most))
    with pytest.raises(msgspec.ValidationError, match="must be a number"):
        decode(b'"%d"' % (most + 1), kind)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("leaseTime", 0, "leaseTime must be a number of seconds, more than 0 and at most 604800"),
        ("retry_limit", 1.5, "retryLimit must be a whole number, at least 0 and at most 1,000,000"),
        ("deadQueue", "x" * 300, "deadQueue must be text, at most 255 characters"),
        ("retentionEnabled", 1, "retentionEnabled must be true or false"),
    ],
)
def test_a_refused_option_is_told_what_it_must_be(name: str, value: object, text: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        OptionChanges.read({name: value})
    assert str(refused.value) == text
