"""What the server says when it is ready: where it listens, where its data is, what to try."""

from __future__ import annotations

import logging
import os
import stat
import sys
from importlib.metadata import version
from typing import TextIO

from monarq.config import Settings
from monarq.places import data_directory, store_address, without_password
from monarq.server.exposure import exposed_files
from monarq.server.logs import is_text

logger = logging.getLogger("monarq.serving")

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


def greet(settings: Settings, port: int, link_code: str | None = None) -> None:
    """Say where the broker listens. The link to the dashboard holds `link_code`, unless others
    could read it there; the log never does."""
    url = url_of(settings, port)
    store = without_password(store_address(settings))
    data = str(data_directory(settings))
    if settings.insecure and not settings.auth:
        logger.warning(
            "nobody is authenticated: whoever reaches this port may do everything but run commands"
        )
    for warning in exposed_files(settings):
        logger.warning("%s", warning)
    if is_text(settings):
        if link_code is not None and _is_readable_by_others(sys.stdout):
            link_code = None
            logger.warning(
                "other users can read the file that stdout goes to, so the dashboard's link there "
                "lets nobody run commands: start with a terminal, or with umask 077"
            )
        sys.stdout.write(_text(settings, url, store, data, link_code))
        sys.stdout.flush()
        return
    fields = {
        "url": url,
        "host": settings.host,
        "port": port,
        "store": store,
        "data": data,
        "workers": settings.workers,
        "version": version("monarq"),
    }
    logger.info("listening", extra={"fields": fields})


def _is_readable_by_others(stream: TextIO) -> bool:
    """Whether the stream goes to a file that not only its owner may read."""
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(mode) and bool(mode & (stat.S_IRGRP | stat.S_IROTH))


def url_of(settings: Settings, port: int) -> str:
    host = _EVERYWHERE.get(settings.host, settings.host)
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    return f"{'https' if settings.tls_certificate else 'http'}://{host}:{port}"


def _text(settings: Settings, url: str, store: str, data: str, link_code: str | None) -> str:
    where = f" (on {settings.host})" if settings.host in _EVERYWHERE else ""
    options = ""
    if settings.tls_certificate:
        options += f" --cacert {settings.tls_certificate}"
    if settings.auth:
        options += ' -H "Authorization: Bearer $MONARQ_TOKEN"'
    json = f"curl{options} -H 'Content-Type: application/json' {url}/api/v1"
    return "\n".join(
        (
            f"Monarq {version('monarq')}",
            f"  listens on  {url}{where}",
            f"  dashboard   {url}/{'' if link_code is None else f'#local={link_code}'}",
            f"  store       {store}",
            f"  data        {data}",
            "",
            "Try it, from another terminal:",
            f"""  {json}/configure -d '{{"queue":"hello"}}'""",
            f"""  {json}/push -d '{{"items":[{{"queue":"hello","payload":{{"text":"hi"}}}}]}}'""",
            f"  curl{options} '{url}/api/v1/pop/queue/hello?autoAck=true'",
            "",
            f"The API is described at {url}/docs. Ctrl+C stops the server.",
            "",
            "",
        )
    )
