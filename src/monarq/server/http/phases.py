"""The phases of a connection. From CHECKING on, what comes in waits or is thrown away."""

IDLE = 0
"""Between two requests, with nothing of the next one there."""
HEAD = 1
BODY = 2
CHECKING = 3
"""The application is checking credentials before the body is read."""
BUSY = 4
"""The application has the request, or is streaming its answer."""
FLUSHING = 5
"""The answer is made, but the client does not take it fast enough."""
LINGERING = 6
"""Refused or ended; what the client still sends is thrown away, so that it reads the answer."""
CLOSED = 7
