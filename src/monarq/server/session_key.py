"""The key that signs the dashboard's sessions: from the settings, or a file of the data directory.

The key is never in the store, since whoever reads a database or its backup could sign in by it.
The store holds a fingerprint, which tells brokers that share a store and not the key, and helps
nobody to guess the key.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections.abc import Callable
from pathlib import Path

from monarq import private_files
from monarq.config import Settings
from monarq.errors import MonarqError, SettingsError
from monarq.places import data_directory
from monarq.server.sessions import Settings as StoredSettings

logger = logging.getLogger("monarq.auth")

FILE = "session-key"
FINGERPRINT = "session_key_fingerprint"
_TRY_AGAIN_SECONDS = 1.0


def key_file(settings: Settings) -> Path:
    return data_directory(settings) / FILE


def session_key(settings: Settings) -> str:
    """Return the key that is set, or the one in the file, which is made at the first start."""
    if settings.session_key:
        return settings.session_key
    try:
        return private_files.make_secret(key_file(settings))
    except (OSError, SettingsError) as error:
        logger.warning(
            "sessions of the dashboard end with this process, since their key cannot be kept "
            "(set session_key): %s",
            error,
        )
        return secrets.token_urlsafe(32)


def fingerprint(key: str) -> str:
    return hmac.digest(key.encode(), b"monarq session key fingerprint", "sha256").hex()[:32]


async def settle(store: Callable[[], StoredSettings], key: str) -> None:
    """Warn if another broker of the store has another key. Tries again while the store is down."""
    while True:
        try:
            return await _settle(store(), key)
        except MonarqError:
            await asyncio.sleep(_TRY_AGAIN_SECONDS)


async def _settle(store: StoredSettings, key: str) -> None:
    own, other = fingerprint(key), (await store.get_settings()).get(FINGERPRINT)
    if other is not None and other != own:
        logger.warning(
            "another broker of this store signs sessions with another key, so that people who "
            "sign in at one are not known to the other: set the same session_key for all (it is "
            "no problem if the key was changed on purpose)"
        )
    if other != own:
        await store.set_setting(FINGERPRINT, own)
