"""Payload encryption at rest: AES-256-GCM, one message at a time.

A stored payload says itself whether it is encrypted: JSON never starts with the
byte 0x01, a sealed payload always does. So payloads can be moved between queues
(to a dead queue, say) as they are, and keys can be changed while old messages
remain readable.

    0x01 | 4 bytes: which key | 12 bytes: nonce | ciphertext and tag
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Iterable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from monarq.errors import EncryptionKeyError, InvalidRequestError

SEALED = 0x01
_HEADER = 1 + 4
_NONCE = 12


def parse_key(text: str) -> bytes:
    """A 256-bit key given as 64 hex digits or as base64."""
    for decode in (binascii.unhexlify, base64.b64decode):
        try:
            key = decode(text.strip())
        except (binascii.Error, ValueError):
            continue
        if len(key) == 32:
            return key
    raise InvalidRequestError("an encryption key is 32 bytes, given as 64 hex digits or base64")


class Cipher:
    """Seals with the first key, opens with any."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._keys = {_fingerprint(key): AESGCM(key) for key in keys}
        if not self._keys:
            raise InvalidRequestError("a cipher needs at least one key")
        self._current = next(iter(self._keys))

    def seal(self, payload: bytes) -> bytes:
        nonce = os.urandom(_NONCE)
        sealed = self._keys[self._current].encrypt(nonce, payload, None)
        return b"".join((bytes([SEALED]), self._current, nonce, sealed))

    def open(self, stored: bytes) -> bytes:
        key = self._keys.get(stored[1:_HEADER])
        if key is None:
            raise EncryptionKeyError(_unknown_key(stored))
        try:
            body = stored[_HEADER + _NONCE :]
            return key.decrypt(stored[_HEADER : _HEADER + _NONCE], body, None)
        except (InvalidTag, ValueError):  # a torn payload may not even have its nonce
            raise EncryptionKeyError(
                "a payload was changed after it was encrypted: it does not match its tag"
            ) from None


def open_payload(stored: bytes, cipher: Cipher | None) -> bytes:
    """The payload as it was pushed."""
    if not stored or stored[0] != SEALED:
        return stored
    if cipher is None:
        raise EncryptionKeyError(_unknown_key(stored))
    return cipher.open(stored)


def _fingerprint(key: bytes) -> bytes:
    return hashlib.sha256(b"monarq key " + key).digest()[:4]


def _unknown_key(stored: bytes) -> str:
    return (
        f"a payload was encrypted with key {stored[1:_HEADER].hex()}, "
        "which this store was not given: add it to the encryption keys"
    )
