"""Payload encryption: nothing readable without the key, nothing changed goes unnoticed."""

import base64
import os

import pytest

from monarq.crypto import BOUND, Cipher, open_value, parse_key
from monarq.errors import EncryptionKeyError, InvalidRequestError

KEY, OTHER_KEY = bytes(range(32)), bytes(range(32, 64))
PLAIN = b'{"secret":"the eagle has landed"}'


@pytest.mark.parametrize("payload", [b"1", PLAIN, b"x" * 1_000_000])
def test_a_sealed_payload_opens_to_what_was_sealed(payload: bytes) -> None:
    cipher = Cipher([KEY])
    assert open_value(cipher.seal(payload), cipher) == payload


def test_a_sealed_payload_shows_nothing_of_the_plain_text_and_is_marked() -> None:
    sealed = Cipher([KEY]).seal(PLAIN)
    assert sealed[0] == BOUND
    assert not any(PLAIN[i : i + 6] in sealed for i in range(len(PLAIN) - 6))


def test_the_same_payload_never_seals_to_the_same_bytes() -> None:
    cipher = Cipher([KEY])
    assert len({cipher.seal(PLAIN) for _ in range(100)}) == 100


@pytest.mark.parametrize("payload", [b"", b"null", b"0", b'"text"', b"[]", b"{}", b" 1", b"\n1"])
def test_what_was_never_sealed_opens_as_it_is_with_or_without_a_key(payload: bytes) -> None:
    assert open_value(payload, None) == payload
    assert open_value(payload, Cipher([KEY])) == payload


def test_without_a_key_the_error_names_the_key_that_is_missing() -> None:
    sealed = Cipher([KEY]).seal(PLAIN)
    with pytest.raises(EncryptionKeyError, match=sealed[1:5].hex()):
        open_value(sealed, None)


def test_a_wrong_key_is_refused_by_name_and_not_tried() -> None:
    sealed = Cipher([KEY]).seal(PLAIN)
    with pytest.raises(EncryptionKeyError, match=sealed[1:5].hex()):
        open_value(sealed, Cipher([OTHER_KEY]))


@pytest.mark.parametrize("at", [5, 16, 17, 20, -17, -1])
def test_one_flipped_bit_anywhere_is_noticed(at: int) -> None:
    cipher = Cipher([KEY])
    changed = bytearray(cipher.seal(PLAIN))
    changed[at] ^= 1
    with pytest.raises(EncryptionKeyError, match="changed"):
        cipher.open(bytes(changed))


@pytest.mark.parametrize("length", [1, 3, 5, 6, 16, 17, 18, 32])
def test_a_torn_payload_is_an_encryption_error_at_any_length(length: int) -> None:
    cipher = Cipher([KEY])
    with pytest.raises(EncryptionKeyError):
        cipher.open(cipher.seal(PLAIN)[:length])


def test_after_a_rotation_the_first_key_seals_and_the_old_one_still_opens() -> None:
    old, new = Cipher([KEY]), Cipher([OTHER_KEY])
    rotated = Cipher([OTHER_KEY, KEY])
    assert rotated.open(old.seal(PLAIN)) == PLAIN
    assert new.open(rotated.seal(PLAIN)) == PLAIN
    with pytest.raises(EncryptionKeyError):
        old.open(rotated.seal(PLAIN))


def test_a_cipher_without_a_key_is_refused() -> None:
    with pytest.raises(InvalidRequestError):
        Cipher([])


@pytest.mark.parametrize(
    "text",
    [
        KEY.hex(),
        KEY.hex().upper(),
        f"  {KEY.hex()}\n",
        base64.b64encode(KEY).decode(),
        base64.b64encode(KEY).decode() + "\n",
    ],
)
def test_a_key_is_read_from_hex_and_from_base64(text: str) -> None:
    assert parse_key(text) == KEY


@pytest.mark.parametrize(
    "text",
    [
        "",
        "secret",
        KEY.hex()[:-2],
        KEY.hex() + "00",
        base64.b64encode(KEY[:31]).decode(),
        base64.b64encode(KEY + b"x").decode(),
        "ü" * 32,
    ],
)
def test_a_key_of_another_size_is_refused_and_not_repeated_in_the_error(text: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_key(text)
    assert not text or text not in str(caught.value)


def test_every_random_key_survives_being_written_as_hex_and_as_base64() -> None:
    for _ in range(200):
        key = os.urandom(32)
        assert parse_key(key.hex()) == parse_key(base64.b64encode(key).decode()) == key
