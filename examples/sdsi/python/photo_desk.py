#!/usr/bin/env python3
"""An agent that publishes a schema template, in Python over plain NATS, after
docs/nats-binding.md, sections 12 and 18. It takes orders to retouch photos.

    python3 examples/sdsi/python/photo_desk.py     # NATS_URL says where, default 127.0.0.1:4222
    aeemesh schema show agent.photo_desk
    aeemesh ask agent.photo_desk 'whiten teeth and blur the background' --model builtin/filler

It needs no model: the client's model has filled the template in, and the desk checks
the values. It writes an order; no photo is changed.
"""
import datetime
import hashlib
import json
import pathlib
import uuid

from plain_nats import NATS, is_inbox

ENTITY = "agent.photo_desk"
INSTANCE = uuid.uuid4().hex
TEMPLATE = json.loads(pathlib.Path(__file__).with_name("photo_retouch.sdsi.json").read_text())
KEYS = {key["key_name"]: key for key in TEMPLATE["keys"]}
MAX_TASK = 128 << 10  # bytes; an answer, which repeats the task's ids, then fits into a message
INTENTS = ["aee.capability.list", "aee.spec.query", "aee.status.health", "aee.status.ping", "sdsi.exchange", "sdsi.schema.get", "sdsi.schema.list"]


class Refused(Exception):
    """An error envelope: its code and its message."""


def retouch(values):
    """What the agent is for: values that fit the template in, a result out."""
    other = values.pop("other", [])
    edits = {name: value for name, value in values.items() if value not in (0, False, "none")}
    return {"order_id": "PH-" + digest([edits, other])[:8].upper(), "edits": edits, "for_a_person": other}


# The template: what is published, and how a payload is checked by it.

def digest(value):
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()


def schema_list(_):
    listed = {name: TEMPLATE[name] for name in ("scenario", "schema_id", "description")}
    return {"scenarios": [{**listed, "languages": [TEMPLATE["language"]], "hash": "sha256:" + digest(TEMPLATE)}]}


def schema_get(ask):
    known(ask.get("schema_id") or TEMPLATE["schema_id"])
    if (ask.get("scenario") or TEMPLATE["scenario"]) != TEMPLATE["scenario"]:
        raise Refused("E_NOT_FOUND", f"{ENTITY} has no such scenario; it has {TEMPLATE['scenario']} ({TEMPLATE['schema_id']})")
    fingerprint = "sha256:" + digest(TEMPLATE)
    if ask.get("if_hash") == fingerprint:
        return {"schema_id": TEMPLATE["schema_id"], "scenario": TEMPLATE["scenario"], "hash": fingerprint, "not_modified": True}
    return {**TEMPLATE, "hash": fingerprint}


def exchange(sent):
    known(sent.get("schema_id"))
    return retouch(checked(sent.get("payload")))


def known(schema_id):
    if schema_id != TEMPLATE["schema_id"]:
        raise Refused("E_NOT_FOUND", f"{ENTITY} has no such template; it has {TEMPLATE['schema_id']}")


def is_integer(value):
    return isinstance(value, int) and not isinstance(value, bool) or isinstance(value, float) and value.is_integer()


TYPES = {"string": lambda v: isinstance(v, str), "boolean": lambda v: isinstance(v, bool), "integer": is_integer}


def wrong(key, value):
    """Says why a value does not fit its key; None: it fits."""
    rules = key.get("value_schema", {})
    if not TYPES[key["key_type"]](value):
        return f"must be of type {key['key_type']}"
    if "enum" in rules and value not in rules["enum"]:
        return "must be one of " + ", ".join(rules["enum"])
    if "minimum" in rules and not rules["minimum"] <= value <= rules["maximum"]:
        return f"must be {rules['minimum']} to {rules['maximum']}"


def checked(payload):
    """The values of a payload with their defaults. An error names every key that is
    wrong, and what it means, so that a model can repair its call; it repeats no value."""
    if not isinstance(payload, dict):
        raise Refused("E_INPUT_SCHEMA", "payload must be an object of keys and values")
    values, problems = {}, []
    for name, key in KEYS.items():
        value = payload.get(name)
        if name == "other":
            continue
        if value is None and key["required"]:  # null: it is left out
            problems.append(f"{name} is missing; send it. {name}: {key['semantic_description']}")
        elif value is None:
            values[name] = key.get("default_value")
        elif why := wrong(key, value):
            problems.append(f"{name} {why}. {name}: {key['semantic_description']}")
        else:
            values[name] = value
    if problems:
        raise Refused("E_INPUT_SCHEMA", f"the payload does not fit the template {TEMPLATE['schema_id']}:\n  " + "\n  ".join(problems))
    # "other" is never refused: it is cut to what a person would read. Unknown keys go there.
    other = payload.get("other") or []
    texts = [other] if isinstance(other, str) else other if isinstance(other, list) else [json.dumps(other)]
    texts = texts + [f"{name}: {json.dumps(value)}" for name, value in payload.items() if name not in KEYS]
    values["other"] = [clean(str(text)) for text in texts[:20]]
    return values


def clean(text):
    return "".join(c if c.isprintable() else " " for c in text)[:1000]


# The mesh: envelopes in, envelopes out.

def work(intent, payload):
    # The draft's own forms mean the same in a task of any intent.
    if payload.get("method") == "get_schema_template" and isinstance(payload.get("params"), dict):
        return schema_get(payload["params"])
    if intent == "sdsi.schema.get":
        return schema_get(payload)
    if intent == "sdsi.schema.list":
        return schema_list(payload)
    if intent == "aee.status.ping":
        return {"pong": True}
    if intent == "aee.spec.query":
        return {"aee_version": "1", "extensions": ["mesh.ext.sdsi"]}
    if intent == "aee.status.health":
        return {"status": "healthy"}
    if intent == "aee.capability.list":
        return {"intents": INTENTS, "scenarios": [TEMPLATE["scenario"]]}
    if intent.startswith(("aee.", "mesh.")):
        raise Refused("E_INTENT_RESERVED", f"{ENTITY} does not answer this intent")
    if intent == "sdsi.exchange" or isinstance(payload.get("payload"), dict):
        return exchange(payload)
    raise Refused("E_INTENT_UNKNOWN", f"{ENTITY} takes the template {TEMPLATE['schema_id']}, filled in: sdsi.schema.get has it")


def answer(task):
    """The envelope that answers a task, or what should have been one."""
    texts = {name: value for name, value in task.items() if isinstance(value, str)}
    try:
        if task.get("v") != "1" or not isinstance(task.get("payload"), dict) or not isinstance(task.get("intent"), str):
            raise Refused("E_INVALID_ENVELOPE", "v, intent or payload is wrong")
        if task.get("to") != ENTITY:
            raise Refused("E_WRONG_RECIPIENT", f"this is {ENTITY}")
        if task.get("type") != "task":
            raise Refused("E_UNEXPECTED_TYPE", "this subject takes tasks")
        kind, payload = "result", work(task["intent"], task["payload"])
    except Refused as e:
        kind, payload = "error", {"code": e.args[0], "message": e.args[1], "retryable": False}
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
        "v": "1", "id": str(uuid.uuid4()), "ts": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "type": kind, "from": ENTITY, "to": texts.get("from", "unknown"), "intent": texts.get("intent", "mesh.envelope.refused"),
        "corr": texts.get("corr", str(uuid.uuid4())), "reply_to": texts.get("id", "0" * 26), "trace": task.get("trace"),
        "priority": texts.get("priority", "normal"), "requires": None, "payload": payload, "sig": None,
    }


def discovered(verb):
    """The answer to a NATS micro request: this is how "aeemesh schema list" finds the desk."""
    metadata = {"entity": ENTITY, "aee_version": "1", "intents": ",".join(INTENTS), "sdsi.scenarios": TEMPLATE["scenario"]}
    info = {"type": f"io.nats.micro.v1.{verb}_response", "name": ENTITY.replace(".", "-"), "id": INSTANCE, "version": "1.0.0", "metadata": metadata}
    if verb == "info":
        info.update(description=TEMPLATE["description"], endpoints=[{"name": "task", "subject": ENTITY, "queue_group": "q", "metadata": None}])
    return info


def serve(nats):
    nats.subscribe(ENTITY, "q")  # several desks share the tasks
    nats.subscribe("aee.ask." + ENTITY, "q")
    for verb in ("PING", "INFO"):
        for place in ("", ".agent-photo_desk", ".agent-photo_desk." + INSTANCE):
            nats.subscribe(f"$SRV.{verb}{place}")
    for subject, reply, _, body in nats.messages():
        if not is_inbox(reply):
            continue
        if subject.startswith("$SRV."):
            nats.publish(reply, json.dumps(discovered(subject.split(".")[1].lower())).encode())
            continue
        try:
            task = json.loads(body) if len(body) <= MAX_TASK else {}
        except (ValueError, RecursionError):
            task = {}
        if not isinstance(task, dict):
            task = {}
        if subject != ENTITY:  # plain text in, plain text out
            out = answer({"v": "1", "type": "task", "to": ENTITY, "intent": "agent.ask", "payload": task})["payload"]
            text = f"error: {out['code']}: {out['message']}" if "code" in out else json.dumps(out)
            nats.publish(reply, text.encode())
            continue
        nats.publish(reply, json.dumps(answer(task)).encode())
        if isinstance(task.get("requires"), dict) and task["requires"].get("stream"):
            nats.publish(reply, b"")  # the end of a stream of none


if __name__ == "__main__":
    try:
        serve(NATS(ENTITY))
    except KeyboardInterrupt:
        pass
