"""Encryption at rest: AES-256-GCM, one value at a time.

A stored value says itself whether it is sealed: JSON never starts with the byte 0x01 or 0x02, a
sealed value always does. So sealed and plain values can lie side by side, sealed values can be
moved as they are, and keys can be changed while old values remain readable.

    0x02 | 4 bytes: which key | 12 bytes: nonce | ciphertext and tag

The *context* of a value says what it is and where it belongs, see `monarq.store.sealing`. It is
authenticated (as AES-GCM's additional data) and not stored: a value that was moved to another
place does not open there. 0x01 is the same format without a context; it is read, not written.

A sealed text is made of characters, for columns of text:

    U+0002 | 16 hex digits: tag of the first line | line break | the sealed value in base64

The tag is the same for equal first lines under one key, so that SQL can group errors by their
first line and find them again without reading them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Iterable, Sequence
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from monarq.errors import EncryptionKeyError, InvalidRequestError
from monarq.model import ERROR_KEY_LENGTH

UNBOUND: Final = 0x01
BOUND: Final = 0x02
SEALS: Final = bytes([UNBOUND, BOUND])
"""The first bytes of sealed values."""
SEALED_TEXT: Final = "\x02"
"""The first character of sealed texts."""
BUFFERED: Final = b"buffer"
"""The context of pushes in the files of the push buffer."""
_KEY_BYTES = 32
_HEADER = 1 + 4
_NONCE = 12
_TAG_DIGITS = 16
OVERHEAD: Final = _HEADER + _NONCE + 16
"""How many bytes a sealed value is longer than the plain one."""


def parse_key(text: str) -> bytes:
    """A 256-bit key given as 64 hex digits or as base64."""
    for decode in (binascii.unhexlify, base64.b64decode):
        try:
            key = decode(text.strip())
        except (binascii.Error, ValueError):
            continue
        if len(key) == _KEY_BYTES:
            return key
    raise InvalidRequestError("an encryption key is 32 bytes, given as 64 hex digits or base64")


def fingerprint(key: bytes) -> bytes:
    """The four bytes by which a sealed value names its key."""
    return hashlib.sha256(b"monarq key " + key).digest()[:4]


def _checked(keys: Any) -> list[bytes]:
    listed = list(keys) if isinstance(keys, Iterable) else [keys]
    if not listed:
        raise InvalidRequestError("a cipher needs at least one key")
    if any(not isinstance(key, bytes) or len(key) != _KEY_BYTES for key in listed):
        raise InvalidRequestError(f"keys must be a list of bytes, {_KEY_BYTES} in each key")
    return listed


class Cipher:
    """Seals with the first key, opens with any."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        listed = _checked(keys)
        self._keys = {fingerprint(key): AESGCM(key) for key in listed}
        self._tag_keys = [hashlib.sha256(b"monarq text tags " + key).digest() for key in listed]
        self.current = fingerprint(listed[0])
        """The fingerprint of the key that seals."""

    def seal(self, value: bytes, context: bytes = b"") -> bytes:
        nonce = os.urandom(_NONCE)
        sealed = self._keys[self.current].encrypt(nonce, value, context)
        return b"".join((bytes([BOUND]), self.current, nonce, sealed))

    def open(self, stored: bytes, *contexts: bytes) -> bytes:
        """Return the plain value, which must have been sealed for one of these contexts (without
        any: for the empty one). Raises `EncryptionKeyError` otherwise, and for unknown keys."""
        key = self._keys.get(stored[1:_HEADER])
        if key is None:
            raise EncryptionKeyError(_unknown_key(stored))
        tried: Sequence[bytes | None] = contexts or (b"",)
        if stored[0] == UNBOUND:
            tried = (None,)
        nonce, body = stored[_HEADER : _HEADER + _NONCE], stored[_HEADER + _NONCE :]
        for context in tried:
            try:
                return key.decrypt(nonce, body, context)
            except (InvalidTag, ValueError):  # a torn value may not even have its nonce
                continue
        raise EncryptionKeyError(
            "a sealed value does not match its tag: it was changed after it was encrypted, "
            "or moved here from another place"
        )

    def seal_text(self, text: str, context: bytes) -> str:
        sealed = base64.b64encode(self.seal(text.encode(), context)).decode()
        return f"{SEALED_TEXT}{_tag(self._tag_keys[0], text)}\n{sealed}"

    def open_text(self, stored: str, context: bytes) -> str:
        return self.open(sealed_bytes(stored), context).decode()

    def first_lines(self, text: str) -> list[str]:
        """The first lines of sealed texts that begin with the line `text`, one for each key."""
        return [f"{SEALED_TEXT}{_tag(key, text)}" for key in self._tag_keys]


def has_seal(data: bytes) -> bool:
    """Whether there may be a sealed value among JSON values: plain JSON has no such byte."""
    return UNBOUND in data or BOUND in data


def is_sealed(stored: bytes) -> bool:
    return bool(stored) and stored[0] in SEALS


def is_sealed_text(stored: str) -> bool:
    return stored.startswith(SEALED_TEXT)


def open_value(stored: bytes, cipher: Cipher | None, *contexts: bytes) -> bytes:
    """The value as it was before it was stored, sealed or not."""
    if not stored or stored[0] not in SEALS:
        return stored
    if cipher is None:
        raise EncryptionKeyError(_unknown_key(stored))
    return cipher.open(stored, *contexts)


def key_of(stored: bytes) -> bytes:
    """The fingerprint of the key that a sealed value was sealed with."""
    return stored[1:_HEADER]


def sealed_bytes(stored: str) -> bytes:
    """The sealed value in a sealed text; raises `EncryptionKeyError` if there is none."""
    try:
        sealed = base64.b64decode(stored[len(SEALED_TEXT) + _TAG_DIGITS + 1 :], validate=True)
    except (binascii.Error, ValueError):
        sealed = b""
    if not is_sealed(sealed):
        raise EncryptionKeyError("a sealed text was changed after it was encrypted")
    return sealed


def _tag(key: bytes, text: str) -> str:
    line = text.split("\n", 1)[0][:ERROR_KEY_LENGTH]
    return hmac.new(key, line.encode(), hashlib.sha256).hexdigest()[:_TAG_DIGITS]


def _unknown_key(stored: bytes) -> str:
    return (
        f"a sealed value was encrypted with key {key_of(stored).hex()}, "
        "which this store was not given: add it to the encryption keys"
    )
