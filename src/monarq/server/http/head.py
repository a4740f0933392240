"""Reads the head of a request: the request line and the headers.

Stricter than HTTP demands. Whatever two servers could read in two ways (which is what request
smuggling lives on) is refused: a bare CR or LF, folded lines, control characters, repeated or
odd lengths. The bytes are held to the grammar first, and then read by httptools.
"""

from __future__ import annotations

import re

import httptools

from monarq.server.answers import HttpError
from monarq.server.exchange import RequestHead
from monarq.server.http.limits import Limits

CHUNKED = -1
"""The length of a body that says its length as it comes."""

# Possessive, so that a hostile head costs one pass and no more.
_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_GRAMMAR = re.compile(
    rb"%(token)b [\x21-\x7e]++ HTTP/1\.[01]\r\n(?:%(token)b:[^\x00-\x08\x0a-\x1f\x7f]*+\r\n)*+\r\n"
    % {b"token": _TOKEN}
)
_REQUEST_LINE = re.compile(rb"%b [\x21-\x7e]++ HTTP/1\.[01]" % _TOKEN)
_BARE = re.compile(rb"\r(?=[^\n])|(?<!\r)\n")
_LENGTH = re.compile(r"[0-9]{1,19}")

# What it would mean to have one of these twice is anybody's guess.
_SINGLE = frozenset(
    {
        "authorization",
        "content-length",
        "content-type",
        "expect",
        "host",
        "traceparent",
        "transfer-encoding",
        "x-api-key",
    }
)
_METHODS = b"DELETE, GET, HEAD, OPTIONS, POST"


class Head(RequestHead):
    """With what it says of the connection and the body."""

    __slots__ = ("expects", "is_current", "is_get", "is_plain", "keeps_alive", "length", "raw")

    def __init__(
        self, raw: bytes, method: str, target: str, headers: dict[str, str], version: str
    ) -> None:
        super().__init__(method, target, headers)
        self.raw = raw
        """Its bytes, with the empty line at its end."""
        self.is_current = version == "1.1"
        """HTTP/1.1, not 1.0."""
        self.is_get = method in ("GET", "HEAD")
        self.length = 0
        """Of the body, or `CHUNKED`."""
        self.keeps_alive = self.is_current
        self.is_plain = False
        """The common case: HTTP/1.1, a connection that is kept, an answer with its body."""
        self.expects = False
        """Whether the client waits for a go-ahead before it sends the body."""


class HeadReader:
    """Reads heads, and remembers those it has read: clients send the same one again and again."""

    _REMEMBERED = 4_096
    _LONGEST_REMEMBERED = 1_024

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.known: dict[bytes, Head] = {}

    def read(self, raw: bytes) -> Head:
        """Of exactly a head, with the empty line at its end. Raises `HttpError`."""
        known = self.known.get(raw)
        if known is not None:
            return known
        if len(raw) > self._limits.head_bytes:
            raise too_long(self._limits)
        if raw.count(b"\n") > self._limits.headers + 2:
            raise HttpError(431, "head_too_large", f"more than {self._limits.headers} headers")
        if not _GRAMMAR.fullmatch(raw):
            raise _refused(_what_is_wrong(raw))
        head = _parse(raw)
        _read_connection(head)
        _read_length(head, self._limits)
        if len(raw) <= self._LONGEST_REMEMBERED:
            if len(self.known) >= self._REMEMBERED:
                self.known.clear()
            self.known[raw] = head
        return head


def check_incomplete(raw: bytes | bytearray, start: int, limits: Limits) -> None:
    """Refuse a head that can only become a bad one, of which up to `start` was looked at before."""
    if len(raw) > limits.head_bytes:
        raise too_long(limits)
    # Not the last byte, whose neighbour has not come yet.
    if _BARE.search(raw, max(start - 1, 0), len(raw)):
        raise _refused("a line of the head ends in a bare CR or LF; lines end in CR LF")


def too_long(limits: Limits) -> HttpError:
    return HttpError(431, "head_too_large", f"the head is longer than {limits.head_bytes} bytes")


def too_large(length: int, most: int) -> HttpError:
    message = f"a body of {length} bytes; at most {most} are taken"
    return HttpError(413, "body_too_large", message)


class _Fields:
    """What httptools calls back."""

    __slots__ = ("headers", "url")

    def __init__(self) -> None:
        self.url = b""
        self.headers: dict[str, str] = {}

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        key = _names.get(name) or _lower(name)
        headers = self.headers
        text = value.decode("latin-1").rstrip(" \t")
        if key in headers:
            if key in _SINGLE:
                raise _refused(f"the header {key} is there twice")
            text = f"{headers[key]}, {text}"
        headers[key] = text


_names: dict[bytes, str] = {}
"""Names of headers as clients write them, and in lower case. All servers of a process share it: it
holds nothing but the results of a function."""


def _lower(name: bytes) -> str:
    key = name.decode("latin-1").lower()
    if len(_names) < 1_000 and len(name) < 100:
        _names[name] = key
    return key


def _parse(raw: bytes) -> Head:
    fields = _Fields()
    parser = httptools.HttpRequestParser(fields)
    try:
        parser.feed_data(raw)
    except httptools.HttpParserUpgrade:
        # We speak nothing else: an invitation to switch is passed over.
        pass
    except httptools.HttpParserInvalidMethodError:
        method = raw.partition(b" ")[0][:20].decode("latin-1")
        raise HttpError(
            405, "method_not_allowed", f"there is no method {method}", ((b"Allow", _METHODS),)
        ) from None
    except httptools.HttpParserCallbackError as error:
        if isinstance(error.__context__, HttpError):
            raise error.__context__ from None
        raise
    except httptools.HttpParserError as error:
        raise _refused(f"the head cannot be read: {error}") from None
    method = parser.get_method().decode("latin-1")
    target = fields.url.decode("latin-1")
    if method == "CONNECT":
        raise HttpError(405, "method_not_allowed", "this is no proxy", ((b"Allow", _METHODS),))
    if "#" in target:
        raise _refused("the request's target has a fragment (#)")
    return Head(raw, method, target, fields.headers, parser.get_http_version())


def _read_connection(head: Head) -> None:
    if head.is_current and "host" not in head.headers:
        raise _refused("the header Host is missing")
    connection = head.headers.get("connection")
    if connection is not None:
        options = {option.strip() for option in connection.lower().split(",")}
        head.keeps_alive = "close" not in options and (head.is_current or "keep-alive" in options)
    head.is_plain = head.is_current and head.keeps_alive and head.method != "HEAD"
    expect = head.headers.get("expect")
    if expect is not None and head.is_current:
        if expect.lower() != "100-continue":
            raise HttpError(417, "expectation_failed", f"cannot meet Expect: {expect[:100]}")
        head.expects = True


def _read_length(head: Head, limits: Limits) -> None:
    encoding = head.headers.get("transfer-encoding")
    length = head.headers.get("content-length")
    if encoding is not None:
        if length is not None:
            raise _refused("both Content-Length and Transfer-Encoding are there")
        if not head.is_current:
            raise _refused("Transfer-Encoding is not for HTTP/1.0")
        if encoding.lower() != "chunked":
            raise _refused(f"Transfer-Encoding can only be chunked, not {encoding[:100]}")
        head.length = CHUNKED
    elif length is not None:
        if not _LENGTH.fullmatch(length):
            raise _refused(f"Content-Length is no length: {length[:100]}")
        head.length = int(length)
        if head.length > limits.body_bytes:
            raise too_large(head.length, limits.body_bytes)


def _refused(message: str) -> HttpError:
    return HttpError(400, "invalid_request", message)


def _what_is_wrong(raw: bytes) -> str:
    if _BARE.search(raw):
        return "a line of the head ends in a bare CR or LF; lines end in CR LF"
    if b"\0" in raw:
        return "there is a NUL in the head"
    request, *lines = raw[:-4].split(b"\r\n")
    if not _REQUEST_LINE.fullmatch(request):
        return (
            "the request line is not METHOD SP TARGET SP HTTP/1.1, in printable ASCII: "
            f"{request[:100].decode('latin-1')!r}"
        )
    for line in lines:
        text = repr(line[:100].decode("latin-1"))
        name, colon, value = line.partition(b":")
        if line[:1] in (b" ", b"\t"):
            return f"a header goes on in a second line (obsolete folding): {text}"
        if not colon:
            return f"a header without a colon: {text}"
        if not re.fullmatch(_TOKEN, name):
            return f"a header's name may not be empty or hold that character: {text}"
        if re.search(rb"[\x00-\x08\x0a-\x1f\x7f]", value):
            return f"a control character in a header: {text}"
    return "the head is malformed"
