"""The phases of a connection. From BUSY on, what comes in waits or is thrown away."""

IDLE = 0
"""Between two requests, with nothing of the next one there."""
HEAD = 1
BODY = 2
BUSY = 3
"""The application has the request, or is streaming its answer."""
FLUSHING = 4
"""The answer is made, but the client does not take it fast enough."""
LINGERING = 5
"""Refused or ended; what the client still sends is thrown away, so that it reads the answer."""
CLOSED = 6
