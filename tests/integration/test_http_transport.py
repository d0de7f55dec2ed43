"""The HTTP transport against bare sockets: deadlines, limits, proxies, certificates, redirects."""

from __future__ import annotations

import gzip
import socket
import ssl
import threading
import time
from contextlib import suppress

import pytest

from step0_wandb.errors import UsageError
from step0_wandb.wandb_api import faults
from step0_wandb.wandb_api.faults import RequestFailed
from step0_wandb.wandb_api.http import HttpLimits, HttpTransport

BODY = b'{"data": {}}'
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n" + BODY
LIMITS = HttpLimits(connect_s=2.0, deadline_s=0.4, body_bytes=1 << 20)

# A certificate for localhost that signs itself, valid until 2120, and its key; good for nothing else.
CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBdzCCAR2gAwIBAgIBATAKBggqhkjOPQQDAjAUMRIwEAYDVQQDDAlsb2NhbGhv
c3QwIBcNMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBaMBQxEjAQBgNVBAMM
CWxvY2FsaG9zdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABCB4YYRGtKTFIwIe
X5qNkvKkjRfqc4EQxN8jZS6VcIbTc97Uun8b+fcsvXUZDKZR1tvC45hhSPJNd4KA
cw0r0eyjXjBcMA8GA1UdEwEB/wQFMAMBAf8wGgYDVR0RBBMwEYIJbG9jYWxob3N0
hwR/AAABMB0GA1UdDgQWBBTgs79OJnCRzdKigEnXg8tyNcdqjTAOBgNVHQ8BAf8E
BAMCAoQwCgYIKoZIzj0EAwIDSAAwRQIgKlJfXInvCVicyGrgim7xoMMg4X55KCTK
mKVJmGWIm8wCIQDYG6OQ2MV5zwLpYD3cQ3xAsZjGsl7iwu1GSCQFnSEUjw==
-----END CERTIFICATE-----
"""
KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQguhRNL7UkEamQqZBL
tQaj2PDKhobbXz6wEyUTQZmz9VShRANCAAQgeGGERrSkxSMCHl+ajZLypI0X6nOB
EMTfI2UulXCG03Pe1Lp/G/n3LL11GQymUdbbwuOYYUjyTXeCgHMNK9Hs
-----END PRIVATE KEY-----
"""


class Peer:
    """Accepts connections on loopback and lets a function answer each request."""

    def __init__(self, answer, *, context=None):
        self.answer = answer
        self.heads = []
        self.context = context
        self.over = threading.Event()
        self.open = set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.threads = [threading.Thread(target=self.accept)]

    def __enter__(self):
        self.threads[0].start()
        return self

    def __exit__(self, *_exception):
        self.over.set()
        with socket.create_connection(("127.0.0.1", self.port)):
            pass
        for connection in tuple(self.open):
            with suppress(OSError):  # it may be gone
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join()
        self.listener.close()

    def accept(self):
        while not self.over.is_set():
            connection, _ = self.listener.accept()
            if self.over.is_set():
                connection.close()
                return
            thread = threading.Thread(target=self.serve, args=(connection,))
            self.threads.append(thread)
            thread.start()

    def serve(self, connection):
        try:
            if self.context:
                connection = self.context.wrap_socket(connection, server_side=True)
            self.open.add(connection)
            while head := self.read(connection):
                self.heads.append(head)
                self.answer(self, connection)
        except OSError:
            pass  # the client went away, which is what most of these tests are about
        finally:
            self.open.discard(connection)
            connection.close()

    @staticmethod
    def read(connection):
        """Return the head of the next request; its body is `{}`."""
        received = b""
        while not received.endswith(b"\r\n\r\n{}"):
            piece = connection.recv(4096)
            if not piece:
                return ""
            received += piece
        return received.decode()

    def drip(self, connection, data, every_s):
        """Send byte by byte until the test is over."""
        for byte in data:
            if self.over.wait(every_s):
                return
            connection.sendall(bytes([byte]))


def plainly(_peer, connection):
    connection.sendall(OK)


def transport(peer, *, environ=None, limits=LIMITS, scheme="http", host="127.0.0.1"):
    url = f"{scheme}://{host}:{peer.port}/graphql"
    return HttpTransport(url, {"Authorization": "Basic a2V5"}, environ=environ or {}, limits=limits)


def failure_of(answer, *, limits=LIMITS):
    with Peer(answer) as peer:
        client = transport(peer, limits=limits)
        with pytest.raises(RequestFailed) as caught:
            client.post(b"{}")
        client.close()
    return caught.value


def test_a_connection_is_used_again():
    with Peer(plainly) as peer:
        client = transport(peer)
        replies = [client.post(b"{}") for _ in range(3)]
        client.close()
        assert len(peer.threads) == 2  # the one that accepts, and one connection
    assert {(reply.status, reply.body) for reply in replies} == {(200, BODY)}
    assert "Authorization: Basic a2V5" in peer.heads[0]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda peer, _connection: peer.over.wait(30), id="no answer"),
        pytest.param(
            lambda peer, connection: peer.drip(connection, OK * 40, 0.05), id="a head that drips in"
        ),
        pytest.param(
            lambda peer, connection: (connection.sendall(OK[:-10]), peer.drip(connection, OK, 0.2)),
            id="a body that drips in",
        ),
        pytest.param(
            lambda peer, connection: (
                connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + BODY),
                peer.over.wait(30),
            ),
            id="a body that does not end",
        ),
        pytest.param(
            lambda peer, connection: (
                connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
                peer.drip(connection, b"1\r\n \r\n" * 400, 0.05),
            ),
            id="chunks that drip in",
        ),
        pytest.param(
            lambda peer, connection: (
                connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"),
                peer.drip(connection, b" " * 2000, 0.05),
            ),
            id="a body without a length that drips in",
        ),
        pytest.param(
            lambda peer, connection: (
                connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n"),
                peer.drip(connection, b" " * 2000, 0.05),
            ),
            id="HTTP/1.0 that drips in",
        ),
        pytest.param(
            lambda peer, connection: (
                connection.sendall(
                    b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
                ),
                peer.drip(connection, b"1\r\n \r\n" * 400, 0.05),
            ),
            id="chunks of a closing connection that drip in",
        ),
    ],
)
def test_a_request_ends_at_its_deadline_whatever_drips_in(answer):
    begun = time.monotonic()
    assert failure_of(answer).fault is faults.TOO_SLOW
    assert time.monotonic() - begun < 20  # the drip takes 100 s


def test_a_read_that_ends_just_before_the_watch_cuts_it_is_too_slow_as_well(monkeypatch):
    monkeypatch.setattr(threading.Timer, "start", lambda _timer: None)

    def halfway(peer, connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + BODY)
        peer.over.wait(30)

    assert failure_of(halfway).fault is faults.TOO_SLOW


def test_the_deadline_of_one_request_does_not_cut_the_next():
    with Peer(plainly) as peer:
        client = transport(peer, limits=HttpLimits(deadline_s=0.2))
        client.post(b"{}")
        time.sleep(0.3)
        assert client.post(b"{}").body == BODY
        assert len(peer.threads) == 2
        client.close()


def test_an_answer_that_is_too_large_is_not_read_to_its_end():
    def endless(peer, connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")
        while not peer.over.is_set():
            connection.sendall(b" " * 65536)

    failure = failure_of(endless, limits=HttpLimits(body_bytes=1 << 20))
    assert failure.fault is faults.TOO_LARGE
    assert failure.fault.smaller


def test_a_small_answer_that_unpacks_to_too_much_is_refused():
    packed = gzip.compress(b" " * (8 << 20))

    def bomb(_peer, connection):
        head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n"
        connection.sendall(head.encode() + packed)

    assert failure_of(bomb, limits=HttpLimits(body_bytes=1 << 20)).fault is faults.TOO_LARGE


def test_a_packed_answer_is_unpacked():
    packed = gzip.compress(BODY)

    def answer(_peer, connection):
        head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n"
        connection.sendall(head.encode() + packed)

    with Peer(answer) as peer:
        client = transport(peer)
        assert client.post(b"{}").body == BODY
        client.close()


@pytest.mark.parametrize(
    "sent",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhalf", b"no HTTP at all\r\n\r\n", b"\x16\x03\x01"],
)
def test_a_cut_or_senseless_answer_is_trouble_with_the_connection(sent):
    def cut(_peer, connection):
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_RDWR)

    assert failure_of(cut).fault is faults.NO_CONNECTION


def test_a_refused_connection_is_told_in_the_systems_words():
    with Peer(plainly) as peer:
        client = transport(peer)
    with pytest.raises(RequestFailed, match="Connection refused") as caught:
        client.post(b"{}")
    assert caught.value.fault is faults.NO_CONNECTION


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed_and_the_key_stays_here(status):
    with Peer(plainly) as other:

        def away(_peer, connection):
            target = f"Location: http://127.0.0.1:{other.port}/graphql"
            connection.sendall(f"HTTP/1.1 {status} Moved\r\n{target}\r\nContent-Length: 0\r\n\r\n".encode())

        with Peer(away) as peer:
            client = transport(peer)
            assert client.post(b"{}").status == status
            client.close()
        assert other.heads == []


def test_the_proxy_of_the_environment_is_used():
    with Peer(plainly) as proxy, Peer(plainly) as peer:
        client = transport(peer, environ={"HTTP_PROXY": f"http://127.0.0.1:{proxy.port}"})
        assert client.post(b"{}").body == BODY
        client.close()
        assert proxy.heads[0].startswith(f"POST http://127.0.0.1:{peer.port}/graphql ")
        assert peer.heads == []


@pytest.mark.parametrize("no_proxy", ["127.0.0.1", "127.0.0.0/8", "*", "other.example.com, 127.0.0.1"])
def test_no_proxy_is_used_where_the_environment_says_so(no_proxy):
    with Peer(plainly) as proxy, Peer(plainly) as peer:
        environ = {"http_proxy": f"http://127.0.0.1:{proxy.port}", "NO_PROXY": no_proxy}
        client = transport(peer, environ=environ)
        assert client.post(b"{}").body == BODY
        client.close()
        assert proxy.heads == []


def test_the_password_of_a_proxy_is_in_no_error():
    with Peer(plainly) as closed:
        pass
    with Peer(plainly) as peer:
        client = transport(peer, environ={"all_proxy": f"http://ada:geheim@127.0.0.1:{closed.port}"})
        with pytest.raises(RequestFailed, match="the proxy does not answer") as caught:
            client.post(b"{}")
        assert "geheim" not in f"{caught.value!r} {caught.value}"


def test_the_environment_of_the_process_counts_for_nothing(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with Peer(plainly) as peer:
        client = transport(peer)
        assert client.post(b"{}").body == BODY
        client.close()


@pytest.fixture
def tls(tmp_path):
    """A TLS context for localhost, and the file of its authority."""
    (tmp_path / "ca.pem").write_text(CERTIFICATE)
    (tmp_path / "both.pem").write_text(CERTIFICATE + KEY)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "both.pem")
    return context, str(tmp_path / "ca.pem")


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"])
def test_the_ca_bundle_of_the_environment_is_trusted(tls, variable):
    context, bundle = tls
    with Peer(plainly, context=context) as peer:
        client = transport(peer, environ={variable: bundle}, scheme="https", host="localhost")
        assert client.post(b"{}").body == BODY
        client.close()


def test_a_server_that_nobody_vouches_for_is_not_spoken_to(tls):
    context, _bundle = tls
    with Peer(plainly, context=context) as peer:
        with pytest.raises(RequestFailed) as caught:
            transport(peer, scheme="https", host="localhost").post(b"{}")
        assert peer.heads == []
    assert caught.value.fault is faults.CERTIFICATE
    assert not caught.value.fault.retried
    assert "REQUESTS_CA_BUNDLE" in caught.value.fault.hint


def test_the_deadline_holds_under_tls_as_well(tls):
    context, bundle = tls
    hang = Peer(lambda peer, _connection: peer.over.wait(30), context=context)
    with hang as peer, pytest.raises(RequestFailed) as caught:
        transport(peer, environ={"REQUESTS_CA_BUNDLE": bundle}, scheme="https", host="localhost").post(b"{}")
    assert caught.value.fault is faults.TOO_SLOW


def test_a_ca_bundle_that_does_not_exist_is_named_with_its_variable():
    with pytest.raises(UsageError, match=r"/nowhere/ca\.pem \(from REQUESTS_CA_BUNDLE\) does not exist"):
        HttpTransport(
            "https://localhost", {}, environ={"REQUESTS_CA_BUNDLE": "/nowhere/ca.pem"}, limits=LIMITS
        )


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-29\r\n" + BODY,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + BODY,
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8bxx",
        b"HTTP/1.1 two OK\r\n\r\n",
        b"\x00\xff",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 500 + b"\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a" * 70_000 + b"\r\n\r\n",
    ],
)
def test_an_answer_that_is_not_http_is_a_failed_request(head):
    def once(_peer, connection):
        connection.sendall(head)
        connection.shutdown(socket.SHUT_RDWR)

    assert failure_of(once).fault is faults.NO_CONNECTION


def test_a_redirect_to_what_is_not_a_url_is_a_redirect():
    def elsewhere(_peer, connection):
        connection.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://[::1/x\r\nContent-Length: 0\r\n\r\n")

    with Peer(elsewhere) as peer:
        client = transport(peer)
        assert client.post(b"{}").status == 302
        client.close()


@pytest.mark.parametrize(
    ("url", "environ"),
    [
        ("http://" + "a" * 70 + ".example.com/graphql", {}),
        ("http://127.0.0.1:9/graphql", {"http_proxy": "http://" + "a" * 70}),
        ("http://127.0.0.1:9/graphql", {"http_proxy": "http://[::1"}),
    ],
)
def test_a_host_that_cannot_be_one_is_a_failed_request(url, environ):
    client = HttpTransport(url, {}, environ=environ, limits=LIMITS)
    with pytest.raises(RequestFailed) as caught:
        client.post(b"{}")
    client.close()
    assert caught.value.fault is faults.NO_CONNECTION
