"""The PostgreSQL store: stored procedures, one round trip a batch."""

from monarq.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
