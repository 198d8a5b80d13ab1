"""The settings of the HTTP service: where it listens, what it accepts, how long it waits.

A value comes from the first that has it: a flag of `tierdex serve`, a variable `TIERDEX_<NAME>`,
the default below. The limits of one query or batch (`max_count_limit`, `max_lookups`,
`max_batch_entries`) are settings of the index, since they hold in every API.

Depends on settings and pydantic.
"""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - read by pydantic
from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator

from tierdex.settings import MIB, EnvironmentSettings, Texts, load

ScopeName = Literal["read", "message", "write", "admin"]
# With public keys only: a secret that the issuer shares with us would let us, and who reads ours, sign.
JwtAlgorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"
]


class ServerSettings(EnvironmentSettings):
    """The knobs of one HTTP service; durations are seconds, sizes bytes."""

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8080, ge=0, le=65535, description="port to listen on; 0: any free port")
    tls_cert: Path | None = Field(
        None,
        description="file of the certificate and its chain (PEM): the service speaks HTTPS only",
    )
    tls_key: Path | None = Field(None, description="file of the certificate's private key (PEM)")
    jwt_jwks: str | None = Field(
        None,
        description="public keys (JWKS) of the issuer whose tokens are taken beside keys: an `https://` or "
        "`file://` URL; needs `tierdex[jwt]`",
        pattern=r"^(https://|file:///|http://(127\.0\.0\.1|localhost)[:/])",
    )
    jwt_issuer: str | None = Field(None, min_length=1, description="`iss` of the tokens")
    jwt_audience: str | None = Field(
        None, min_length=1, description="audience that `aud` of a token must contain"
    )
    jwt_algorithms: list[JwtAlgorithm] = Field(
        ["RS256", "ES256"], min_length=1, description="algorithms of the signatures"
    )
    jwt_claim: str = Field(
        "scope",
        description="claim with the rights: values like `tierdex:read:orders.*`, or names of `jwt_grants`; "
        "`a.b` is `b` in `a`",
    )
    jwt_grants: dict[str, list[str]] = Field(
        default_factory=dict,
        description='grants of a value of the claim: `{"support": ["message:orders.*"]}`',
    )
    allow_anonymous: ScopeName | None = Field(
        None, description="scope of a caller without a key; none: keys decide, or loopback only"
    )
    allowed_hosts: Texts = Field(
        default_factory=list,
        description="further names that the Host header may carry while no keys are set",
    )
    allowed_origins: Texts = Field(
        default_factory=list,
        description="further origins (`https://ui.example`) whose pages may POST without a key",
    )
    log: bool | None = Field(
        None,
        description="serve the message log of the data folder: true creates one, none: serve one that exists",
    )
    max_body_bytes: int = Field(64 * MIB, gt=0, description="longest request body")
    max_json_bytes: int = Field(
        16 * MIB, gt=0, description="longest JSON or ndjson body; it unfolds in memory"
    )
    max_bodies_bytes: int = Field(
        256 * MIB,
        gt=0,
        description="request bodies held at one time, JSON counted 8 times; above it 503",
    )
    max_requests: int = Field(
        512, gt=0, description="requests served at one time; above it 503 with Retry-After"
    )
    max_waits: int = Field(
        256,
        gt=0,
        description="requests that wait for messages (`wait_ms`) at one time; above it 503",
    )
    max_wait: float = Field(
        60.0, ge=0, description="seconds after which a wait for messages is answered at the latest"
    )
    max_connections: int = Field(
        2000, gt=0, description="connections at one time, half the open files at most; above it 503"
    )
    connection_timeout: float = Field(
        10.0,
        gt=0,
        description="seconds for a request's head to arrive, and for a caller to read a part of an answer",
    )
    body_timeout: float = Field(
        30.0, gt=0, description="seconds without a byte of the body after which a request is ended"
    )
    body_rate: int = Field(
        4096, gt=0, description="bytes a second that a body must bring after `body_timeout`"
    )
    stop_timeout: float = Field(
        5.0, gt=0, description="seconds that running requests get to finish after SIGTERM"
    )
    default_max_count: int = Field(
        64, gt=0, description="entries of an answer to a request without `max_count`"
    )
    rate_limit: float | None = Field(
        None,
        gt=0,
        description="requests a second of one caller; above it 429 with Retry-After; none: no limit. A key "
        "may have its own (`tierdex keys create --rate-limit`)",
    )
    rate_burst: int = Field(
        20, gt=0, description="requests that a caller may make at once before `rate_limit` counts"
    )
    audit_secret: SecretStr | None = Field(
        None,
        min_length=32,
        description="write an `audit` line for each request into topics: caller, topics, and the digests of "
        "keys under this secret; none: no such lines",
    )
    compress_above: int | None = Field(
        4096,
        gt=0,
        description="bytes from which on an answer is compressed for callers that take zstd or gzip; none: "
        "never",
    )
    mcp: bool = Field(
        False,
        description="answer assistants at `/mcp` (Model Context Protocol), with the rights of their keys; "
        "needs `tierdex[mcp]`",
    )
    traces: bool = Field(
        False,
        description="take spans by OTLP at `/v1/traces` into the message log, and answer trace IDs as Tempo "
        "(below `/tempo`) and Jaeger (below `/jaeger`) do; needs `tierdex[traces]`",
    )
    trace_topic: str = Field(
        "traces", description="topic of the spans", min_length=1, max_length=255
    )
    trace_spans: bool = Field(
        False,
        description="a span of OpenTelemetry for each request, for the provider that is set; needs "
        "`tierdex[otel]`",
    )
    log_requests: bool = Field(True, description="one structured line a request on stderr")

    @model_validator(mode="after")
    def _tls_needs_both(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key are given together")
        return self

    @model_validator(mode="after")
    def _tokens_name_issuer_and_audience(self) -> Self:
        if self.jwt_jwks is not None and None in (self.jwt_issuer, self.jwt_audience):
            raise ValueError("jwt_jwks needs jwt_issuer and jwt_audience")
        return self


def load_server_settings(**overrides: object) -> ServerSettings:
    """Return the settings with `overrides` on top. Raises InvalidRequestError naming the setting."""
    return load(ServerSettings, overrides)
