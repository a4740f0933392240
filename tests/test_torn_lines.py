import io
from pathlib import Path

from tests.chaos import events
from tests.torn_lines import whole_lines


def test_a_torn_last_line_is_left_out() -> None:
    assert list(whole_lines(io.BytesIO(b'{"a": 1}\n{"b": 2}\n{"c"'))) == [b'{"a": 1}', b'{"b": 2}']
    assert list(whole_lines(io.BytesIO(b"a\n"))) == [b"a"]


def test_the_log_of_a_killed_client_may_end_in_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "client.log"
    path.write_bytes(b'{"type":"pu')
    assert events.read_logs(tmp_path) == []
