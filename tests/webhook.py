"""A chat service in a thread: answers posts as it is told to, and remembers what it was sent."""

from __future__ import annotations

import contextlib
import email.parser
import email.policy
import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

TOKEN = "s3cr3t-T0KEN_abcdefghijklmnopqrstuvwxyz0123456789"


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One answer."""

    status: int = 200
    headers: Mapping[str, str] = {}
    body: bytes = b'{"id": "1"}'
    raw: bytes | None = None
    """Sent in place of a well-made answer; b"" closes the connection without a word."""
    hang: bool = False
    """No answer until the server is closed."""


class Post(msgspec.Struct, frozen=True, kw_only=True):
    """One request."""

    path: str
    payload: dict[str, Any]
    files: dict[str, str]
    status: int

    @property
    def title(self) -> str:
        """Of its first embed."""
        return str(self.payload["embeds"][0]["title"])


class Webhook:
    """`script`: answers to the next posts, in order; after them everything is taken."""

    def __init__(self) -> None:
        self.script: list[Reply] = []
        self.posts: list[Post] = []
        self.requests = 0
        self._lock = threading.Lock()
        self._over = threading.Event()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                service._answer(self, body)

            def do_GET(self) -> None:
                service._reply(self, Reply())

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """As Discord would hand it out."""
        return f"http://127.0.0.1:{self._server.server_port}/api/webhooks/123456789012345678/{TOKEN}"

    @property
    def told(self) -> list[str]:
        """Titles of the messages that were taken, in order."""
        with self._lock:
            return [post.title for post in self.posts if post.status < 300]

    def close(self) -> None:
        """Let go of whoever still waits."""
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        with self._lock:
            self.requests += 1
            reply = self.script.pop(0) if self.script else Reply()
        if reply.hang:
            self._over.wait(60)
            return
        payload, files = _read(handler.headers.get("Content-Type", ""), body)
        post = Post(path=handler.path, payload=payload, files=files, status=reply.status if reply.raw is None else 599)
        with self._lock:
            self.posts.append(post)
        self._reply(handler, reply)

    def _reply(self, handler: BaseHTTPRequestHandler, reply: Reply) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            if reply.raw is not None:
                handler.wfile.write(reply.raw)
                handler.close_connection = True
                return
            handler.send_response(reply.status)
            for name, value in reply.headers.items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", str(0 if reply.status == 204 else len(reply.body)))
            handler.end_headers()
            if reply.status != 204:
                handler.wfile.write(reply.body)


@contextlib.contextmanager
def serve() -> Iterator[Webhook]:
    """One service, closed at the end."""
    service = Webhook()
    try:
        yield service
    finally:
        service.close()


def _read(kind: str, body: bytes) -> tuple[dict[str, Any], dict[str, str]]:
    """The JSON of a post, and the files with it."""
    if not kind.startswith("multipart/"):
        try:
            return json.loads(body), {}
        except ValueError:
            return {"raw": body.decode(errors="replace")}, {}
    parsed = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(
        b"Content-Type: " + kind.encode() + b"\r\n\r\n" + body
    )
    payload: dict[str, Any] = {}
    files: dict[str, str] = {}
    for part in parsed.iter_parts():
        raw = part.get_payload(decode=True)
        content = raw.decode() if isinstance(raw, bytes) else ""
        name = part.get_filename()
        if name:
            files[name] = content
        else:
            payload = json.loads(content)
    return payload, files
