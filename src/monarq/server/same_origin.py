"""Refuses calls that another site made a browser send.

A page elsewhere can make a browser send simple requests here, with whatever the browser adds of
itself. So a call that changes something is refused if the browser says that it comes from another
origin, and, if it proves itself by a cookie alone, without the token that only our own page knows.
Programs that are no browsers send none of these headers, and notice nothing.

A page elsewhere can also let its own name lead to this machine, and is of the same origin then.
Only the name that it calls gives that away.
"""

from __future__ import annotations

import hmac
import re
from urllib.parse import urlsplit

from monarq.server.answers import HttpError
from monarq.server.exchange import Principal
from monarq.settings_checks import is_loopback

_PORT = re.compile(r":[0-9]*\Z")


def check_host(headers: dict[str, str]) -> None:
    """Of any call to a broker that asks nobody who they are, and listens to this machine only."""
    host = headers.get("host")
    if host is None:
        return
    name = _PORT.sub("", host.lower())
    if name.endswith(".localhost") or is_loopback(name):
        return
    raise HttpError(
        403,
        "foreign_host",
        "without auth only this machine's own names are answered; set auth, or insecure",
    )


def check_origin(headers: dict[str, str]) -> None:
    """Refuse a call that changes something if a page of another site or a followed link sent it."""
    if headers.get("sec-fetch-mode") == "navigate":
        # A pop is a GET: a link that somebody follows would take a message.
        raise HttpError(403, "navigation", "this call changes something: it is not for links")
    # What the browser itself says holds; a page cannot set it, and a proxy leaves it alone.
    site = headers.get("sec-fetch-site")
    if site is not None:
        if site not in ("same-origin", "none"):
            raise HttpError(403, "foreign_origin", "this call came from a page of another site")
        return
    origin = headers.get("origin")
    if origin is None:
        return
    try:
        host = urlsplit(origin).netloc
    except ValueError:
        host = ""
    if not host or host not in (headers.get("host"), headers.get("x-forwarded-host")):
        raise HttpError(403, "foreign_origin", "this call came from a page of another site")


def check_token(headers: dict[str, str], principal: Principal) -> None:
    """Of a call that changes something, by somebody who is known by a cookie."""
    expected = principal.csrf_token
    if expected is None:
        return
    given = headers.get("x-csrf-token", "").encode("utf-8", "surrogateescape")
    if not hmac.compare_digest(given, expected.encode()):
        raise HttpError(
            403, "csrf", "calls with a session's cookie must send its token as X-CSRF-Token"
        )
