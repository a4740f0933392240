"""The settings, with their defaults and meaning. How they are gathered is `settings_loading`'s."""

from __future__ import annotations

from typing import Annotated, Any, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct

from monarq.model import POP_MAX_BYTES

Port = Annotated[int, Meta(ge=0, le=65_535)]
Positive = Annotated[int, Meta(ge=1, le=2**40)]
Milliseconds = Annotated[float, Meta(ge=0, le=86_400_000)]
PositiveSeconds = Annotated[float, Meta(gt=0, le=86_400)]


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set, one flat list; the same names in flags (`--batch-max`),
    variables (`MONARQ_BATCH_MAX`) and the file (`batch_max`)."""

    # Where it listens.
    host: Annotated[str, Meta(description="address to listen on")] = "127.0.0.1"
    port: Annotated[Port, Meta(description="port to listen on; 0 takes a free one")] = 6632
    workers: Annotated[
        int, Meta(ge=1, le=256, description="processes that share the port (PostgreSQL only)")
    ] = 1
    tls_certificate: Annotated[str, Meta(description="PEM file with the certificate chain")] = ""
    tls_key: Annotated[str, Meta(description="PEM file with the certificate's key")] = ""
    insecure: Annotated[
        bool, Meta(description="listen beyond loopback although nobody is authenticated")
    ] = False

    # Where the data is.
    store: Annotated[
        str, Meta(description="store address; empty is a SQLite file in the data directory")
    ] = ""
    data_dir: Annotated[
        str, Meta(description="directory of the embedded store and the push buffer")
    ] = ""
    schema: Annotated[str, Meta(description="PostgreSQL schema")] = "monarq"
    encryption_keys: Annotated[
        list[str], Meta(description="hexadecimal 256-bit keys, the one to encrypt with first")
    ] = []

    # Limits of the HTTP server.
    max_body_bytes: Annotated[Positive, Meta(description="largest request body")] = 64 << 20
    max_header_bytes: Annotated[Positive, Meta(description="largest request head")] = 64 << 10
    max_connections: Annotated[Positive, Meta(description="open connections, per process")] = 20_000
    max_connections_per_address: Annotated[
        Positive, Meta(description="open connections from one address, per process")
    ] = 10_000
    max_event_streams_per_address: Annotated[
        Positive, Meta(description="dashboard pages that watch from one address, per process")
    ] = 128
    header_timeout_seconds: Annotated[
        PositiveSeconds, Meta(description="time for a client to send a request's head")
    ] = 10.0
    body_timeout_seconds: Annotated[
        PositiveSeconds, Meta(description="longest pause while a client sends a body")
    ] = 30.0
    body_min_bytes_per_second: Annotated[
        Positive,
        Meta(description="slowest average rate of a body, once it takes longer than such a pause"),
    ] = 16 << 10
    keep_alive_seconds: Annotated[
        PositiveSeconds, Meta(description="how long an idle connection is kept")
    ] = 75.0
    write_timeout_seconds: Annotated[
        PositiveSeconds, Meta(description="longest pause of a client that reads an answer")
    ] = 60.0
    drain_seconds: Annotated[
        PositiveSeconds, Meta(description="how long a shutdown waits for calls under way")
    ] = 30.0

    # The broker's loop.
    batch_wait_ms: Annotated[
        Milliseconds, Meta(description="how long a push waits for company while the store is busy")
    ] = 5.0
    batch_max: Annotated[Positive, Meta(description="messages in one push to the store")] = 1_000
    batch_max_bytes: Annotated[Positive, Meta(description="bytes in one push to the store")] = (
        8 << 20
    )
    push_concurrency: Annotated[
        Positive, Meta(description="pushes to PostgreSQL at the same time")
    ] = 2
    pop_concurrency: Annotated[
        Positive, Meta(description="pops from PostgreSQL at the same time")
    ] = 4
    pop_batch_max: Annotated[Positive, Meta(description="pops in one call to the store")] = 64
    pop_max_bytes: Annotated[
        Positive,
        Meta(description="bytes of payloads in the answer to one pop, unless one message has more"),
    ] = POP_MAX_BYTES
    inbox_max: Annotated[Positive, Meta(description="calls waiting for the store, per kind")] = (
        20_000
    )
    inbox_max_bytes: Annotated[
        Positive, Meta(description="bytes of pushes waiting for the store")
    ] = 128 << 20
    parked_max: Annotated[Positive, Meta(description="pops that wait for a message")] = 100_000
    poll_min_ms: Annotated[
        Milliseconds, Meta(description="first interval at which waiting pops look again")
    ] = 100.0
    poll_max_ms: Annotated[
        Milliseconds, Meta(description="longest interval at which waiting pops look again")
    ] = 1_000.0
    sqlite_poll_ms: Annotated[
        Milliseconds, Meta(description="how often other processes' writes to the file are noticed")
    ] = 30.0
    lifecycle_limit: Annotated[Positive, Meta(description="rows of one lifecycle step")] = 1_000
    lifecycle_max_seconds: Annotated[
        PositiveSeconds, Meta(description="longest pause between two lifecycle steps")
    ] = 5.0
    store_timeout_seconds: Annotated[
        PositiveSeconds, Meta(description="how long a call to PostgreSQL may take")
    ] = 10.0
    store_pool_max: Annotated[Positive, Meta(description="connections to PostgreSQL")] = 10

    # Pushes while the store is down.
    buffer_enabled: Annotated[
        bool, Meta(description="keep pushes in files while the store is down")
    ] = True
    buffer_file_bytes: Annotated[Positive, Meta(description="size of one buffer file")] = 64 << 20
    buffer_max_bytes: Annotated[Positive, Meta(description="size of all buffer files")] = 10 << 30
    buffer_retry_seconds: Annotated[
        PositiveSeconds, Meta(description="how often a store that is down is tried again")
    ] = 1.0

    # Other brokers on the same PostgreSQL.
    peers: Annotated[list[str], Meta(description="host:port of each other broker's notices")] = []
    peer_host: Annotated[str, Meta(description="address to receive notices on")] = "127.0.0.1"
    peer_port: Annotated[
        Port, Meta(description="UDP port to receive notices on; 0 takes a free one")
    ] = 0
    peer_key: Annotated[str, Meta(description="secret that authenticates notices")] = ""

    # Who may call.
    auth: Annotated[bool, Meta(description="demand a token or an API key of every caller")] = False
    jwt_secret: Annotated[str, Meta(description="HS256 secret")] = ""
    jwt_public_key: Annotated[str, Meta(description="PEM file for RS256 or EdDSA")] = ""
    jwt_jwks: Annotated[str, Meta(description="file or URL of a JSON web key set")] = ""
    jwt_algorithms: Annotated[
        list[str], Meta(description="accepted algorithms; empty follows from the keys")
    ] = []
    jwt_issuer: Annotated[str, Meta(description="the `iss` that tokens must have")] = ""
    jwt_audience: Annotated[str, Meta(description="the `aud` that tokens must have")] = ""
    jwt_role_claim: Annotated[str, Meta(description="claim with the role")] = "role"
    jwt_leeway_seconds: Annotated[
        float, Meta(ge=0, le=3600, description="how far clocks may differ")
    ] = 30.0
    session_key: Annotated[
        str,
        Meta(
            description="secret that signs the dashboard's sessions, the same for all brokers of a "
            "store; empty is one in a file of the data directory"
        ),
    ] = ""
    api_keys: Annotated[
        str, Meta(description="file with hashed API keys, made by `monarq api-key`")
    ] = ""

    # What it tells.
    log_format: Annotated[
        str, Meta(pattern="^(auto|json|text)$", description="json, text, or auto: text on a tty")
    ] = "auto"
    log_level: Annotated[
        str, Meta(pattern="^(debug|info|warning|error)$", description="least that is logged")
    ] = "info"
    slow_request_ms: Annotated[
        Milliseconds, Meta(description="requests (other than pops) that take longer are logged")
    ] = 1_000.0
    metrics_queue_labels: Annotated[
        int, Meta(ge=0, le=100_000, description="queues with labels of their own in the metrics")
    ] = 500
    tracing: Annotated[
        bool, Meta(description="send OpenTelemetry spans (needs the extra otel)")
    ] = False


#: What `--help` and the documentation group the settings by: the first of each group.
GROUPS: dict[str, str] = {
    "host": "Where it listens",
    "store": "Where the data is",
    "max_body_bytes": "Limits of the HTTP server",
    "batch_wait_ms": "The broker's loop",
    "buffer_enabled": "Pushes while the store is down",
    "peers": "Other brokers on the same PostgreSQL",
    "auth": "Who may call",
    "log_format": "What it tells",
}
#: Never shown; of `store` only the password is hidden.
SECRETS = frozenset({"encryption_keys", "peer_key", "jwt_secret", "session_key"})


class Field(Struct, frozen=True, kw_only=True):
    """What there is to know of one setting."""

    name: str
    type: Any
    """With its bounds, for msgspec."""
    kind: str
    """`int`, `float`, `bool`, `str` or `list`."""
    default: Any
    description: str
    group: str
    bounds: str
    """In words; empty if there are none."""
    choices: tuple[str, ...]

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return "MONARQ_" + self.name.upper()

    @property
    def secret(self) -> bool:
        return self.name in SECRETS

    @property
    def is_list(self) -> bool:
        return self.kind == "list"


def _fields() -> dict[str, Field]:
    hints = get_type_hints(Settings, include_extras=True)
    default = Settings()
    group = ""
    fields: dict[str, Field] = {}
    for name in Settings.__struct_fields__:
        group = GROUPS.get(name, group)
        kind, *metas = (
            get_args(hints[name]) if get_origin(hints[name]) is Annotated else [hints[name]]
        )
        fields[name] = Field(
            name=name,
            type=hints[name],
            kind=(get_origin(kind) or kind).__name__,
            default=getattr(default, name),
            description=next(meta.description for meta in reversed(metas) if meta.description),
            group=group,
            bounds=_bounds(metas),
            choices=_choices(metas),
        )
    return fields


def _bounds(metas: list[Meta]) -> str:
    words = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
    return " and ".join(
        f"{text} {bound}"
        for name, text in words.items()
        for meta in metas
        if (bound := getattr(meta, name)) is not None
    )


def _choices(metas: list[Meta]) -> tuple[str, ...]:
    patterns = [meta.pattern for meta in metas if meta.pattern]
    return tuple(patterns[0].strip("^$()").split("|")) if patterns else ()


FIELDS: dict[str, Field] = _fields()
"""Every setting by name, in the order of the struct."""
