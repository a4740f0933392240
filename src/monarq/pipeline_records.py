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

from monarq.errors import ConflictError, MonarqError

ANALYSIS_KIND = "pipeline-analysis"
REPORT_KIND = "pipeline-report"

#: How many analyses are kept; older ones stay in the lake.
ANALYSES_KEPT = 20
#: Largest report, unpacked. A record of 1 MiB could hold a page a thousand times as large.
MOST_REPORT_BYTES = 16 << 20


class _Packed(Struct, frozen=True, kw_only=True):
    html_gzip: str


def pack_report(html: str) -> bytes:
    """The value of a report's record."""
    packed = gzip.compress(html.encode(), compresslevel=9, mtime=0)
    return msgspec.json.encode(_Packed(html_gzip=base64.b64encode(packed).decode()))


def unpack_report(value: bytes) -> str:
    """Return the page in a report's record. Takes milliseconds: call it from a thread."""
    try:
        packed = base64.b64decode(msgspec.json.decode(value, type=_Packed).html_gzip, validate=True)
        unpacker = zlib.decompressobj(wbits=31)
        # One byte more than may be, to tell a larger page from one that just fits.
        page = unpacker.decompress(packed, MOST_REPORT_BYTES + 1)
        if len(page) > MOST_REPORT_BYTES:
            raise ConflictError(
                f"the report has more than {MOST_REPORT_BYTES >> 20} MiB: open it in the lake"
            )
        if not unpacker.eof:
            raise MonarqError("the report is damaged: its end is missing")
        return page.decode()
    except (msgspec.DecodeError, ValueError, zlib.error) as error:
        raise MonarqError(f"the report is damaged: {error}") from error
