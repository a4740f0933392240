from hypothesis import given
from hypothesis import strategies as st

from monarq.jobs.output import BoundedOutput


def test_what_fits_is_kept_as_it_came() -> None:
    output = BoundedOutput(10)
    output.add(b"hello")
    output.add(b"world")
    assert output.text == "helloworld"
    assert output.cut == 0


def test_of_what_is_too_long_both_ends_are_kept_and_a_mark_says_how_much_is_missing() -> None:
    output = BoundedOutput(10)
    output.add(b"first" + b"x" * 1_000_000 + b"final")
    assert output.text == "first\n[… 1,000,000 bytes cut …]\nfinal"


@given(chunks=st.lists(st.binary(max_size=40), max_size=30), limit=st.integers(0, 50))
def test_the_ends_are_the_same_however_the_bytes_are_cut_into_chunks(
    chunks: list[bytes], limit: int
) -> None:
    whole = b"".join(chunks)
    output, at_once = BoundedOutput(limit), BoundedOutput(limit)
    for chunk in chunks:
        output.add(chunk)
    at_once.add(whole)
    assert output.text == at_once.text
    assert output.size == len(whole)
    assert output.cut == max(0, len(whole) - limit)


def test_what_is_no_text_is_shown_as_text() -> None:
    output = BoundedOutput()
    output.add(b"a\0b\xff")
    assert output.text == "a␀b�"
