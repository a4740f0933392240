"""Signing in and out at the dashboard."""

from __future__ import annotations

import msgspec

from monarq.errors import InvalidRequestError, UnauthorizedError
from monarq.operations.operation import Role
from monarq.server.exchange import JSON, Principal, Request, Response
from monarq.server.local_callers import ANYBODY
from monarq.server.local_callers import COOKIE as LOCAL_COOKIE
from monarq.server.routing import Route
from monarq.server.same_origin import check_origin, check_token
from monarq.server.service import Service
from monarq.server.sessions import Session, clear_cookie, cookie_of, set_cookie
from monarq.times import iso
from monarq.wire.session import RoleName, SessionAnswer, SignInBody

_encode = msgspec.json.Encoder().encode
_NO_STORE = (b"Cache-Control", b"no-store")


async def get_session(service: Service, request: Request) -> Response:
    if service.sessions is None:
        return _answer(_local(service, request))
    try:
        session = await service.sessions.session(request.headers)
    except UnauthorizedError:
        return _answer(_NOBODY)
    return _answer(_known(service, session.principal, session))


async def sign_in(service: Service, request: Request) -> Response:
    body: SignInBody = request.body
    check_origin(request.headers)
    if service.sessions is None:
        return _sign_in_locally(service, request, body.token.strip())
    session = await service.sessions.sign_in(body.token.strip())
    cookie = set_cookie(
        session,
        service.now(),
        is_secure=service.sessions.is_secure(request.headers),
        name=service.sessions.cookie_name(request.headers),
    )
    return _answer(_known(service, session.principal, session), cookie)


async def sign_out(service: Service, request: Request) -> Response:
    check_origin(request.headers)
    if service.sessions is None:
        cleared = None
        if cookie_of(request.headers, LOCAL_COOKIE) is not None:
            cleared = clear_cookie(is_secure=_is_secure(service, request), name=LOCAL_COOKIE)
        return _answer(_known(service, ANYBODY, None), cleared)
    try:
        session = await service.sessions.session(request.headers)
    except UnauthorizedError:
        pass
    else:
        check_token(request.headers, session.principal)
        await service.sessions.end(session)
    cleared = clear_cookie(
        is_secure=service.sessions.is_secure(request.headers),
        name=service.sessions.cookie_name(request.headers),
    )
    return _answer(_NOBODY, cleared)


def _local(service: Service, request: Request) -> SessionAnswer:
    """Where authentication is off: the page may run commands if it has the cookie."""
    session = None if service.local is None else service.local.session(request.headers)
    return _known(service, ANYBODY if session is None else session.principal, session)


def _sign_in_locally(service: Service, request: Request, code: str) -> Response:
    if service.local is None:
        raise InvalidRequestError("nobody needs to sign in here: auth is off")
    session = service.local.sign_in(code)
    is_secure = _is_secure(service, request)
    cookie = set_cookie(session, service.now(), is_secure=is_secure, name=LOCAL_COOKIE)
    return _answer(_known(service, session.principal, session), cookie)


def _answer(answer: SessionAnswer, cookie: bytes | None = None) -> Response:
    headers = (_NO_STORE,) if cookie is None else (_NO_STORE, (b"Set-Cookie", cookie))
    return Response(200, _encode(answer), JSON, headers)


def _is_secure(service: Service, request: Request) -> bool:
    """Whether the browser came by TLS, to us or to a proxy in front."""
    return bool(service.settings.tls_certificate) or (
        request.headers.get("x-forwarded-proto", "").lower() == "https"
    )


_NOBODY = SessionAnswer(
    auth=True,
    signed_in=False,
    subject=None,
    role=None,
    roles=[],
    csrf_token=None,
    expires_at=None,
    version=None,
    store=None,
)


def _known(service: Service, principal: Principal, session: Session | None) -> SessionAnswer:
    ranks = list(Role)
    included = ranks[: ranks.index(principal.role) + 1]
    return SessionAnswer(
        auth=service.sessions is not None,
        signed_in=True,
        subject=principal.subject,
        role=_name(principal.role),
        roles=[
            _name(role) for role in included if role is not Role.JOBS or principal.may_run_commands
        ],
        csrf_token=session.csrf_token if session is not None else None,
        expires_at=iso(session.until) if session is not None else None,
        version=service.version,
        store="postgresql" if service.is_postgres else "sqlite",
    )


def _name(role: Role) -> RoleName:
    return role.value


_PATH = "/api/v1/session"

ROUTES = (
    Route(
        method="GET",
        path=_PATH,
        handler=get_session,
        summary="Who is signed in, and what they may do",
        tag="session",
        role=None,
        answer=SessionAnswer,
        errors=(503,),
    ),
    Route(
        method="POST",
        path=_PATH,
        handler=sign_in,
        summary="Sign in: a token or an API key for a cookie that pages cannot read",
        tag="session",
        role=None,
        body=SignInBody,
        answer=SessionAnswer,
        errors=(401, 403, 503),
    ),
    Route(
        method="DELETE",
        path=_PATH,
        handler=sign_out,
        summary="Sign out",
        tag="session",
        role=None,
        answer=SessionAnswer,
        errors=(403, 503),
    ),
)
