"""HTTP/1.1 over sockets: what comes in becomes calls to the application, what it answers goes
out. Knows nothing of queues."""

from monarq.server.http.connection import Connection
from monarq.server.http.endpoint import Application, Counters, Endpoint
from monarq.server.http.limits import Limits

__all__ = ["Application", "Connection", "Counters", "Endpoint", "Limits"]
