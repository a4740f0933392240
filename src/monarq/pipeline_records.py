"""How analyses are kept beside the queues, for those who show them: the names of their records
and the form of their values.

An analysis is two records with the same key, the id of its run: its figures as JSON, and its
report, a page of HTML. A page is many times smaller packed than a record may be.
"""

from __future__ import annotations

import base64
import gzip
import zlib

import msgspec
from msgspec import Struct

from monarq.errors import MonarqError

ANALYSIS_KIND = "pipeline-analysis"
REPORT_KIND = "pipeline-report"

#: How many analyses are kept; older ones stay in the lake.
ANALYSES_KEPT = 20


class _Packed(Struct, frozen=True, kw_only=True):
    html_gzip: str


def pack_report(html: str) -> bytes:
    """The value of a report's record."""
    packed = gzip.compress(html.encode(), compresslevel=9, mtime=0)
    return msgspec.json.encode(_Packed(html_gzip=base64.b64encode(packed).decode()))


def unpack_report(value: bytes) -> str:
    """The page in a report's record."""
    try:
        packed = base64.b64decode(msgspec.json.decode(value, type=_Packed).html_gzip, validate=True)
        return gzip.decompress(packed).decode()
    except (msgspec.DecodeError, ValueError, OSError, EOFError, zlib.error) as error:
        raise MonarqError(f"the report is damaged: {error}") from error
