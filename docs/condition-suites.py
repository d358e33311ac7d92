#!/usr/bin/env python3
"""Runs the condition languages' own test suites through "aeemesh condition eval --batch".

    docs/condition-suites.py jsonpath cts.json
    docs/condition-suites.py jmespath jmespath.test/tests/*.json
    docs/condition-suites.py jsonlogic tests.json suites/*.json
    docs/condition-suites.py cel cel-spec/tests/simple/testdata/*.textproto

A suite says what the result of an expression is; a condition says whether it is
true. So each case asks for the truth of the expected result, by the language's own
rule, or for an error where the suite expects one; cel's cases ask whether the
expression equals the expected value. -v prints what differs. AEEMESH names the
binary.
"""
import glob, json, math, os, re, subprocess, sys

VERDICTS = {True: '{"result":true}', False: '{"result":false}'}


def jsonpath(name):
    for t in json.load(open(name))["tests"]:
        want = None if t.get("invalid_selector") else bool(t["result"] if "result" in t else t["results"][0])
        yield t["name"], t["selector"], t.get("document"), want


def jmespath(name):
    for group in json.load(open(name)):
        for t in group["cases"]:
            if "bench" in t:
                continue
            r = t.get("result")
            want = None if "error" in t else r is not None and r is not False and r != "" and r != [] and r != {}
            yield t["expression"], t["expression"], group["given"], want


def jsonlogic(name):
    for t in json.load(open(name)):
        if isinstance(t, str):
            continue
        if isinstance(t, list):
            t = {"rule": t[0], "data": t[1], "result": t[2]}
        r = t.get("result")
        want = None if "error" in t else bool(r)
        if isinstance(r, dict):
            want = True  # an empty object is truthy
        yield json.dumps(t["rule"]), t["rule"], t.get("data"), want


def cel(name):
    for section in textproto(open(name, encoding="utf-8").read()).get("section", []):
        for t in section.get("test", []):
            case = section["name"][0] + "/" + t["name"][0]
            try:
                yield (case,) + cel_case(t)
            except Inexpressible:
                yield case, None, None, None


class Inexpressible(Exception):
    """What needs protocol buffers, typed variables or another host's set-up."""


def cel_case(t):
    expr = t["expr"][0]
    if "TestAllTypes" in expr or any(k in t for k in ("container", "disable_macros", "disable_check", "check_only", "typed_result", "unknown", "any_unknowns")):
        raise Inexpressible
    data = {}
    for b in t.get("bindings", []):
        if "." in b["key"][0]:
            raise Inexpressible
        data[b["key"][0]] = cel_json(b["value"][0]["value"][0])
    if "eval_error" in t or "any_eval_errors" in t:
        return expr, data, None
    if "value" not in t:
        return expr, data, True
    value = t["value"][0]
    if "bool_value" in value:
        return expr, data, value["bool_value"][0] == "true"
    return "(%s) == (%s)" % (expr, cel_literal(value)), data, True


def cel_json(v):
    (kind, (x, *_)), = v.items()
    if kind == "bool_value":
        return x == "true"
    if kind == "string_value":
        return x
    if kind == "double_value":
        return float(x)
    if kind == "null_value":
        return None
    if kind == "list_value":
        return [cel_json(e) for e in x.get("values", [])]
    if kind == "map_value" and all("string_value" in e["key"][0] for e in x.get("entries", [])):
        return {e["key"][0]["string_value"][0]: cel_json(e["value"][0]) for e in x.get("entries", [])}
    raise Inexpressible


def cel_literal(v):
    (kind, (x, *_)), = v.items()
    if kind == "int64_value":
        return x
    if kind == "uint64_value":
        return x + "u"
    if kind == "double_value":
        f = float(x)
        if math.isnan(f):
            raise Inexpressible
        return "double('%s')" % x if math.isinf(f) else repr(f)
    if kind == "string_value":
        return json.dumps(x, ensure_ascii=False)
    if kind == "bytes_value":
        return "b'" + "".join("\\x%02x" % c for c in x.encode("latin-1" if isinstance(x, Raw) else "utf-8")) + "'"
    if kind == "null_value":
        return "null"
    if kind == "bool_value":
        return x
    if kind == "type_value" and x in ("bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type"):
        return x
    if kind == "list_value":
        return "[" + ", ".join(cel_literal(e) for e in x.get("values", [])) + "]"
    if kind == "map_value":
        return "{" + ", ".join(cel_literal(e["key"][0]) + ": " + cel_literal(e["value"][0]) for e in x.get("entries", [])) + "}"
    raise Inexpressible


TOKEN = re.compile(r"""\s+|\#[^\n]*|(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(?P<word>\[[\w./]+\]|[\w.+-]+)|(?P<mark>[{}:<>\[\],;])""")


def textproto(source):
    """Protocol buffers as text: every field is a list of texts or of messages."""
    tokens = [(m.lastgroup, m.group()) for m in TOKEN.finditer(source) if m.lastgroup]
    pos = 0

    def message(end):
        nonlocal pos
        fields = {}
        while pos < len(tokens) and tokens[pos][1] not in end:
            name = tokens[pos][1]
            pos += 1
            if tokens[pos][1] == ":":
                pos += 1
            values = fields.setdefault(name, [])
            if tokens[pos][1] == "[":
                pos += 1
                while tokens[pos][1] != "]":
                    values.append(value())
                    if tokens[pos][1] == ",":
                        pos += 1
                pos += 1
            else:
                values.append(value())
            if pos < len(tokens) and tokens[pos][1] in ",;":
                pos += 1
        pos += 1
        return fields

    def value():
        nonlocal pos
        kind, text = tokens[pos]
        pos += 1
        if text in "{<":
            return message("}>")
        if kind != "text":
            return text
        out = unescape(text[1:-1])
        while pos < len(tokens) and tokens[pos][0] == "text":
            out += unescape(tokens[pos][1][1:-1])
            pos += 1
        try:
            return out.encode("latin-1").decode("utf-8")
        except (UnicodeDecodeError, UnicodeEncodeError):
            return Raw(out)

    return message("")


class Raw(str):
    """Bytes that are no UTF-8, as characters up to 255."""


def unescape(s):
    """The text's bytes, as characters up to 255."""
    s = s.encode("utf-8").decode("latin-1")
    simple = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}

    def one(m):
        e = m.group(1)
        if e[0] in "xX":
            return chr(int(e[1:], 16))
        if e[0] in "uU":
            return chr(int(e[1:], 16)).encode("utf-8").decode("latin-1")
        if e[0] in "01234567":
            return chr(int(e, 8))
        return simple.get(e, e)

    return re.sub(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|.)", one, s)


def main():
    args = [a for a in sys.argv[1:] if a != "-v"]
    suites = {"jsonpath": jsonpath, "jmespath": jmespath, "jsonlogic": jsonlogic, "cel": cel}
    if len(args) < 2 or args[0] not in suites:
        sys.exit(__doc__)
    total = right = left_out = 0
    for pattern in args[1:]:
        for name in sorted(glob.glob(pattern)) or [pattern]:
            cases = list(suites[args[0]](name))
            run = [c for c in cases if c[1] is not None or args[0] != "cel"]
            lines = "".join(json.dumps({"lang": args[0], "expr": c[1], "data": c[2]}) + "\n" for c in run)
            out = subprocess.run([os.environ.get("AEEMESH", "aeemesh"), "condition", "eval", "--batch"],
                                 input=lines.encode(), stdout=subprocess.PIPE, check=True).stdout.decode().splitlines()
            good = 0
            for (case, expr, _, want), got in zip(run, out, strict=True):
                ok = got.startswith('{"error":') if want is None else got == VERDICTS[want]
                good += ok
                if not ok and "-v" in sys.argv:
                    print("  %s: %s: want %s, got %s" % (case, json.dumps(expr), "an error" if want is None else want, got))
            print("%s: %d/%d%s" % (os.path.basename(name), good, len(run), ", %d left out" % (len(cases) - len(run)) if len(cases) > len(run) else ""))
            total, right, left_out = total + len(run), right + good, left_out + len(cases) - len(run)
    print("%s: %d of %d (%.1f%%)%s" % (args[0], right, total, 100 * right / max(total, 1), ", %d left out" % left_out if left_out else ""))


main()
