"""A webhook on loopback, as Slack runs one: it takes JSON, and remembers what people read."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Hook:
    """Takes posts at a secret path.

    Attributes
    ----------
    texts : list of str
        What arrived, in order.
    paths : list of str
        Where every request went, refused ones too.
    status : int
        How it answers.
    seen : callable
        Called with the number of each request, from 1, before it is answered; returns what becomes of
        it: ``take``, ``lose`` (taken, but never answered) or ``cut`` (neither).
    """

    SECRET = "/services/T0/B0/not-to-be-told"  # noqa: S105 - of a double

    def __init__(self):
        self.clear()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def clear(self):
        """Forget all, and take everything from now on."""
        self.texts = []
        self.paths = []
        self.status = 200
        self.seen = lambda _number: "take"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_exception):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_address[1]}{self.SECRET}"


def _handler(hook):
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_arguments):
            """Print nothing."""

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            hook.paths.append(self.path)
            fate = hook.seen(len(hook.paths))
            if fate != "cut" and hook.status < 300:
                hook.texts.append(body["text"])
            if fate != "take":
                self.close_connection = True
                return
            self.send_response(hook.status)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

    return Handler
