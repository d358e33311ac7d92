#!/usr/bin/env python3
"""A durable agent in Python, with nothing but its standard library, after docs/nats-binding.md,
"A durable agent in short". A task is done by one of its workers even if another one dies with it.

    aeemesh apply --entity agent.steady      # makes the streams, and the agent's consumers
    python3 examples/polyglot/durable.py     # NATS_URL says where, default 127.0.0.1:4222
    aeemesh send agent.steady '{"text": "quiet"}' --durable

Start two, and kill one of them with kill -9 while it works: DELAY=60 makes each task take a minute.
It is no NATS micro service, so "send" warns that no worker answers, and "aeemesh agents list" lacks it.
"""
import datetime
import hashlib
import json
import os
import secrets
import socket
import sys
import threading
import time
import urllib.parse
import uuid

import agent  # the work, and the envelopes

agent.ENTITY = ENTITY = "agent.steady"
LEASE = 3  # seconds; --lease of "aeemesh apply"
RUNS = uuid.UUID("0e0b7c53-8a1d-4d7e-9c36-521fd43b906a")
SIGNED = ("corr", "from", "id", "intent", "payload", "reply_to", "requires", "to", "ts", "type", "v")
STORED = "KV_aee_state"  # the stream of records and replies


def main(server):
    workers = [threading.Thread(target=draw, args=(server, priority), daemon=True) for priority in ("urgent", "high", "normal", "low")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def draw(server, priority):
    """Does the tasks of one priority, one after the other."""
    try:
        conn = Connection(server)
        conn.ask(f"$KV.aee_lanes.{escape(ENTITY)}", ENTITY.encode())
        while True:
            request = {"batch": 1, "expires": 5_000_000_000, "group": "topology-6"}
            message = conn.ask(f"$JS.API.CONSUMER.MSG.NEXT.AEE_WORK.{priority}-{escape(ENTITY)}", json.dumps(request).encode(), wait=10)
            if not message.status:
                with Lease(conn, message.reply):
                    attempt(conn, message)
            elif not message.status.startswith(("404", "408")):  # nothing came in five seconds
                print(f"{priority}: {message.status}", file=sys.stderr)
                time.sleep(1)
    except OSError as error:  # the process ends, and a supervisor starts another one
        print(f"no connection to the NATS server {server}: {error}", file=sys.stderr)
        os._exit(1)


def attempt(conn, message):
    try:
        do(conn, message)
    except (ValueError, ArithmeticError, RecursionError) as error:  # it has no canonical form: no envelope
        print(f"not a task: {error}", file=sys.stderr)
        conn.publish(message.reply, b"+TERM")


def do(conn, message):
    """Does a task once, stores its answer, says so, and only then acknowledges the message."""
    task = agent.read(message.body)
    known = agent.texts_of(task).get("id")
    if not known:
        return conn.publish(message.reply, b"+TERM")
    reply = f"aee.reply.{ENTITY}.{escape(known)}"
    if agent.texts_of(task).get("intent", "").startswith("mesh.task."):  # a command, which this agent does not know
        conn.ask(reply, *refusal(task))
        return conn.publish(message.reply, b"+ACK")
    end = f"$KV.aee_reply.{ENTITY}.{uuid.uuid5(RUNS, f'{ENTITY} {known}')}"
    stored = conn.ask(f"$JS.API.DIRECT.GET.{STORED}.{end}")
    if stored.status:  # 404: it is new
        stored = finish(conn, task, message, end)
    if stored:
        headers = {name: stored.headers[name] for name in ("Aee-Seq", "Aee-Epoch", "Aee-Task-Digest") if name in stored.headers}
        conn.publish(reply, stored.body, {**headers, "Nats-Expected-Stream": STORED})  # told, not stored again
        conn.publish(message.reply, b"+ACK")


def finish(conn, task, message, end):
    """Does the work, and stores its end as the run's reply. If that is refused, another worker was first."""
    began = moment(time.time())
    time.sleep(float(os.environ.get("DELAY", "0")))
    envelope = agent.answer(task)
    tokens = message.reply.split(".")  # $JS.ACK, perhaps a domain and an account, then stream, consumer, ...
    sequence, stored = (tokens[5], tokens[7]) if len(tokens) == 9 else (tokens[7], tokens[9])
    run = {"task": task["id"], "under": task.get("reply_to") or "", "digest": digest(task), "agent": ENTITY, "epoch": 1,
           "stored_at": moment(int(stored) / 1e9), "started_at": began}
    answer = Message(body=json.dumps(envelope).encode(), headers={
        "Aee-Seq": "1", "Aee-Epoch": "1", "Aee-Task-Digest": digest(task), "Aee-Work": sequence, "Aee-End": json.dumps(run),
        "Aee-Status": "completed" if envelope["type"] == "result" else "failed", "Nats-Msg-Id": envelope["id"],
        "Nats-Expected-Stream": STORED, "Nats-Expected-Last-Subject-Sequence": "0",
        "Nats-Expected-Last-Subject-Sequence-Subject": f"$KV.*.{end.removeprefix('$KV.aee_reply.')}",
    })
    ack = json.loads(conn.ask(end, answer.body, answer.headers).body)
    if "error" not in ack:
        return answer
    print(f"{task['id']}: {ack['error']}", file=sys.stderr)
    stored = conn.ask(f"$JS.API.DIRECT.GET.{STORED}.{end}")
    return None if stored.status else stored  # without an answer the message comes again


def refusal(command):
    """The answer to a command, and its headers."""
    envelope = agent.answer(command)
    envelope.update(type="error", payload={"code": "E_DENIED", "message": "this agent obeys no commands", "retryable": False})
    return json.dumps(envelope).encode(), {"Aee-Task-Digest": digest(command), "Nats-Msg-Id": envelope["id"]}


def digest(task):
    """Which task is answered: docs/nats-binding.md, Aee-Task-Digest."""
    covered = {name: task.get(name) for name in SIGNED}
    if covered["reply_to"] is not None:
        covered.update(ts="", requires=None)
    return hashlib.sha256(canonical(covered).encode()).hexdigest()[:32]


def canonical(value):
    """JSON in the form of RFC 8785."""
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(canonical(name) + ":" + canonical(value[name]) for name in names) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, float):
        return number(value)
    return json.dumps(value, ensure_ascii=False)


def number(value):
    """A double as JavaScript writes it."""
    if value == int(value) and abs(value) < 1e21:
        return str(int(value))
    text = repr(value)
    if "e" not in text:
        return text
    digits, exponent = text.split("e")
    if -7 < int(exponent) < 0:
        return f"{value:.{len(digits.replace('.', '').replace('-', '')) - 1 - int(exponent)}f}"
    return f"{digits}e{'+' if int(exponent) > 0 else ''}{int(exponent)}"


def escape(text):
    """One token of a subject, see docs/nats-binding.md, Subjects."""
    out = "".join(chr(b) if chr(b).isascii() and (chr(b).isalnum() or chr(b) in "-_") else f"={b:02X}" for b in text.encode())
    return ("=5F" + out[1:] if out.startswith("_") else out) or "="


def moment(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).isoformat().replace("+00:00", "Z")


class Lease:
    """Says that a message is in work, until the work has ended."""

    def __init__(self, conn, ack):
        self.conn, self.ack, self.ended = conn, ack, threading.Event()

    def __enter__(self):
        threading.Thread(target=self.renew, daemon=True).start()

    def __exit__(self, *_):
        self.ended.set()

    def renew(self):
        while not self.ended.wait(LEASE / 3):
            self.conn.publish(self.ack, b"+WPI")


class Message:
    def __init__(self, body, headers, reply=None, status=""):
        self.body, self.headers, self.reply, self.status = body, headers, reply, status


class Connection:
    """A connection that waits for one answer at a time. Use a NATS client library for an agent of your own."""

    def __init__(self, server):
        where = urllib.parse.urlparse(server if "//" in server else "nats://" + server)
        self.socket = socket.create_connection((where.hostname, where.port or 4222))
        self.lines, self.sending = self.socket.makefile("rb"), threading.Lock()
        self.subscription = 0
        self.lines.readline()  # INFO
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "lang": "python", "version": "1", "name": ENTITY}
        if where.username:
            options.update(user=where.username, **{"pass": where.password or ""})
        self.send(f"CONNECT {json.dumps(options)}\r\nPING\r\n".encode())

    def send(self, data):
        with self.sending:
            self.socket.sendall(data)

    def publish(self, subject, body, headers=None, reply=""):
        lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        head = f"NATS/1.0\r\n{lines}\r\n".encode()
        self.send(f"HPUB {subject} {reply} {len(head)} {len(head) + len(body)}\r\n".encode() + head + body + b"\r\n")

    def ask(self, subject, body=b"", headers=None, wait=5):
        """The answer to a request: a task that comes has a subject of its own, so the subscription tells."""
        self.subscription += 1
        inbox = "_INBOX." + secrets.token_hex(12)
        self.socket.settimeout(wait)
        self.send(f"SUB {inbox} {self.subscription}\r\nUNSUB {self.subscription} 1\r\n".encode())  # for one message
        self.publish(subject, body, headers, inbox)
        while True:
            subscription, message = self.receive()
            if subscription == self.subscription:
                return message

    def receive(self):
        while line := self.lines.readline():
            verb, *args = line.decode(errors="replace").split()
            if verb == "PING":
                self.send(b"PONG\r\n")
            elif verb == "-ERR":
                raise OSError(line.decode(errors="replace").strip())
            elif verb in ("MSG", "HMSG"):
                # MSG subject sid [reply] bytes; HMSG has the size of the headers before that of all.
                sizes = 2 if verb == "HMSG" else 1
                skip = int(args[-2]) if verb == "HMSG" else 0
                data = self.lines.read(int(args[-1]) + 2)[:-2]
                first, *rest = data[:skip].decode(errors="replace").split("\r\n")
                headers = dict((name, value.strip()) for name, _, value in (line.partition(":") for line in rest) if name)
                reply = args[2] if len(args) == 3 + sizes else None
                return int(args[1]), Message(data[skip:], headers, reply, first.removeprefix("NATS/1.0").strip())
        raise OSError("the server has closed the connection")


if __name__ == "__main__":
    try:
        main(os.environ.get("NATS_URL", "127.0.0.1:4222"))
    except KeyboardInterrupt:
        pass
