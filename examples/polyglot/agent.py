#!/usr/bin/env python3
"""An agent in Python, with nothing but its standard library: it speaks NATS over
a socket, after docs/nats-binding.md. It writes texts in capitals.

    python3 examples/polyglot/agent.py       # NATS_URL says where, default 127.0.0.1:4222
    aeemesh send agent.capitals '{"text": "quiet"}'

For an agent of your own use a NATS client library, which also knows TLS,
credentials and other servers of a cluster.
"""
import datetime
import json
import os
import socket
import sys
import urllib.parse
import uuid

ENTITY = "agent.capitals"
MAX_TASK = 64 << 10  # bytes; an answer, in which capitals are escaped, then fits into a message


def work(payload):
    """What the agent is for: a payload in, a payload out."""
    if not isinstance(payload.get("text"), str):
        raise Refused("E_INPUT_SCHEMA", "the payload needs a text")
    return {"text": payload["text"].upper()}


class Refused(Exception):
    """An error envelope: its code and its message."""


def read(body):
    """The task in a message's body; an empty one if there is none."""
    try:
        task = json.loads(body) if len(body) <= MAX_TASK else None
    except (ValueError, RecursionError):
        task = None
    return task if isinstance(task, dict) else {}


def answer(task):
    """The envelope that answers a task, or what should have been one."""
    texts = texts_of(task)
    kind, payload = "result", None
    try:
        if task.get("v") != "1" or not isinstance(task.get("payload"), dict):
            raise Refused("E_INVALID_ENVELOPE", "v or payload is wrong")
        if task.get("to") != ENTITY:
            raise Refused("E_WRONG_RECIPIENT", f"this is {ENTITY}")
        if task.get("type") != "task":
            raise Refused("E_UNEXPECTED_TYPE", "this subject takes tasks")
        payload = {"pong": True} if task.get("intent") == "aee.status.ping" else work(task["payload"])
    except Refused as e:
        kind, payload = "error", {"code": e.args[0], "message": e.args[1], "retryable": False}
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
        "v": "1", "id": str(uuid.uuid4()), "ts": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "type": kind, "from": ENTITY, "to": texts.get("from", "unknown"), "intent": texts.get("intent", "mesh.envelope.refused"),
        "corr": texts.get("corr", str(uuid.uuid4())), "reply_to": texts.get("id", "0" * 26), "trace": texts_of(task.get("trace")) or None,
        "priority": texts.get("priority", "normal"), "requires": None, "payload": payload, "sig": None,
    }


def texts_of(value):
    """The members of an object that are texts."""
    return {name: text for name, text in value.items() if isinstance(text, str)} if isinstance(value, dict) else {}


def serve(url):
    """Subscribes in queue group q, so that several of these share the tasks."""
    where = urllib.parse.urlparse(url if "//" in url else "nats://" + url)
    with socket.create_connection((where.hostname, where.port or 4222)) as conn:
        lines = conn.makefile("rb")
        lines.readline()  # INFO
        options = {"verbose": False, "pedantic": False, "headers": True, "lang": "python", "version": "1", "name": ENTITY}
        if where.username:
            options.update(user=where.username, **{"pass": where.password or ""})
        conn.sendall(f"CONNECT {json.dumps(options)}\r\nSUB {ENTITY} q 1\r\nPING\r\n".encode())
        while line := lines.readline():
            verb, *args = line.decode(errors="replace").split()
            if verb == "PING":
                conn.sendall(b"PONG\r\n")
            elif verb == "-ERR":
                raise SystemExit(line.decode(errors="replace"))
            elif verb in ("MSG", "HMSG"):
                # MSG subject sid [reply] bytes; HMSG has the size of the headers before that of all.
                sizes = 2 if verb == "HMSG" else 1
                skip = int(args[-2]) if verb == "HMSG" else 0
                body = lines.read(int(args[-1]) + 2)[skip:-2]
                reply = args[2] if len(args) == 3 + sizes else None
                if reply:
                    task = read(body)
                    out = json.dumps(answer(task)).encode()
                    conn.sendall(f"PUB {reply} {len(out)}\r\n".encode() + out + b"\r\n")
                    if isinstance(task.get("requires"), dict) and task["requires"].get("stream"):
                        conn.sendall(f"PUB {reply} 0\r\n\r\n".encode())  # the end of a stream of none


if __name__ == "__main__":
    server = os.environ.get("NATS_URL", "127.0.0.1:4222")
    try:
        serve(server)
    except OSError as error:
        sys.exit(f"no connection to the NATS server {server}: {error}")
