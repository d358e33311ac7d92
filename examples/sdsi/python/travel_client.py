#!/usr/bin/env python3
"""A client that knows the draft and nothing of envelopes: it asks the travel desk for
its template, fills in what its arguments say, and sends it, in the draft's own JSON and
as plain text over NATS.

    python3 examples/sdsi/python/travel_client.py origin=OSL destination=FCO departure_date=2031-05-05
"""
import json
import sys

from plain_nats import NATS

DESK = "aee.ask.agent.travel_desk"


def ask(nats, question):
    answer = nats.request(DESK, json.dumps(question).encode()).decode()
    if answer.startswith("error: "):
        raise SystemExit(answer)
    return json.loads(answer)


def main(arguments):
    nats = NATS("travel client")
    template = ask(nats, {"method": "get_schema_template", "params": {"scenario": "flight_booking", "preferred_language": "de"}})
    for key in template["keys"]:
        print(f"{key['key_name']:16} {key['key_type']:8} {'required' if key['required'] else '':9} {key['semantic_description']}")
    types = {key["key_name"]: key["key_type"] for key in template["keys"]}
    payload = {}
    for argument in arguments:
        name, _, value = argument.partition("=")
        payload[name] = int(value) if types.get(name) == "integer" and value.isdecimal() else value
    order = {"schema_id": template["schema_id"], "payload": payload}
    print(json.dumps(order))
    print(json.dumps(ask(nats, order)))


if __name__ == "__main__":
    main(sys.argv[1:])
