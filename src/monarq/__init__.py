"""Monarq: one broker for messages and jobs, on SQLite or PostgreSQL."""

from importlib.metadata import version

__version__ = version("monarq")

__all__ = ["__version__"]
