"""As much of the NATS protocol as these examples need, with Python's standard
library alone. For a program of your own use a NATS client library: it also
knows TLS, credentials and the other servers of a cluster.
"""
import json
import os
import socket
import urllib.parse
import uuid


class NATS:
    """A connection. NATS_URL says where to, by default this machine."""

    def __init__(self, name, url=None):
        url = url or os.environ.get("NATS_URL") or "127.0.0.1:4222"
        where = urllib.parse.urlparse(url if "//" in url else "nats://" + url)
        try:
            self.socket = socket.create_connection((where.hostname, where.port or 4222))
        except OSError as e:
            raise SystemExit(f"no NATS server at {url}: {e}")
        self.lines = self.socket.makefile("rb")
        self.lines.readline()  # INFO
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "lang": "python", "version": "1", "name": name}
        if where.username:
            options.update(user=where.username, **{"pass": where.password or ""})
        self.socket.sendall(f"CONNECT {json.dumps(options)}\r\nPING\r\n".encode())
        self.subscriptions = 0

    def subscribe(self, subject, group=""):
        self.subscriptions += 1
        self.socket.sendall(f"SUB {subject} {group} {self.subscriptions}\r\n".encode())

    def publish(self, subject, body, reply=""):
        self.socket.sendall(f"PUB {subject} {reply} {len(body)}\r\n".encode() + body + b"\r\n")

    def messages(self):
        """Yields the subject, reply subject, headers and body of each message."""
        while line := self.lines.readline():
            verb, *args = line.decode(errors="replace").split()
            if verb == "PING":
                self.socket.sendall(b"PONG\r\n")
            elif verb == "-ERR":
                raise SystemExit(line.decode(errors="replace").strip())
            elif verb in ("MSG", "HMSG"):
                # MSG subject sid [reply] bytes; HMSG has the size of the headers before that of all.
                sizes = 2 if verb == "HMSG" else 1
                skip = int(args[-2]) if verb == "HMSG" else 0
                raw = self.lines.read(int(args[-1]) + 2)
                reply = args[2] if len(args) == 3 + sizes else ""
                yield args[0], reply, raw[:skip].decode(errors="replace"), raw[skip:-2]

    def request(self, subject, body):
        """Returns the body of the first answer that has one."""
        inbox = "_INBOX." + uuid.uuid4().hex
        self.subscribe(inbox)
        self.publish(subject, body, inbox)
        for to, _, headers, answer in self.messages():
            if to == inbox and headers.startswith("NATS/1.0 503"):
                raise SystemExit(f"nobody answers on {subject}")
            if to == inbox and answer:
                return answer
        raise SystemExit("the connection is closed")


def is_inbox(reply):
    """An agent answers to inboxes only: docs/nats-binding.md, section 3."""
    return reply.startswith("_") or (reply != "" and "." not in reply and not reply.startswith("$"))
