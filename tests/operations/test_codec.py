"""Types of fields whose JSON form differs from their Python form."""

import re

import msgspec
import pytest

from monarq.ids import LongNumberText, NumberText
from monarq.operations.codec import decode, encode, schema_hook


@pytest.mark.parametrize(("kind", "most"), [(NumberText, 10**18 - 1), (LongNumberText, 2**63 - 1)])
def test_the_largest_id_of_each_kind_is_read_back(kind: type[NumberText], most: int) -> None:
    text = encode(kind(most))
    assert text == b'"%d"' % most
    assert decode(text, kind) == most
    assert re.fullmatch(schema_hook(kind)["pattern"], str(most))
    with pytest.raises(msgspec.ValidationError, match="must be a number"):
        decode(b'"%d"' % (most + 1), kind)
