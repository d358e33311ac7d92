// An agent in Node.js, with nothing but its standard library: it speaks NATS
// over a socket, after docs/nats-binding.md. It counts words.
//
//   node examples/polyglot/agent.mjs      # NATS_URL says where, default 127.0.0.1:4222
//   aeemesh send agent.word_count '{"text": "three little words"}'
//
// For an agent of your own use a NATS client library: examples/node-agent does.
import { connect } from "node:net";
import { randomUUID } from "node:crypto";

const entity = "agent.word_count";
const maxTask = 512 << 10; // bytes; an answer then fits into a message
const refuse = (code, message) => { throw { code, message, retryable: false }; };

// What the agent is for: a payload in, a payload out.
function work(payload) {
  if (typeof payload.text !== "string") refuse("E_INPUT_SCHEMA", "the payload needs a text");
  return { text: payload.text, words: payload.text.split(/\s+/).filter(Boolean).length };
}

// The task in a message's body; an empty one if there is none.
function read(body) {
  try { return Object(body.length <= maxTask ? JSON.parse(body) : null); } catch { return {}; }
}

// The members of an object that are texts.
const textsOf = (value) => Object.fromEntries(Object.entries(Object(value)).filter(([, text]) => typeof text === "string"));

// The envelope that answers a task, or what should have been one.
function answer(task) {
  const texts = textsOf(task), trace = textsOf(task.trace);
  let type = "result", payload;
  try {
    if (task.v !== "1" || task.payload?.constructor !== Object) refuse("E_INVALID_ENVELOPE", "v or payload is wrong");
    if (task.to !== entity) refuse("E_WRONG_RECIPIENT", `this is ${entity}`);
    if (task.type !== "task") refuse("E_UNEXPECTED_TYPE", "this subject takes tasks");
    payload = task.intent === "aee.status.ping" ? { pong: true } : work(task.payload);
  } catch (e) {
    if (!e.code) throw e;
    type = "error"; payload = e;
  }
  return { v: "1", id: randomUUID(), ts: new Date().toISOString(), type, from: entity, to: texts.from ?? "unknown", intent: texts.intent ?? "mesh.envelope.refused",
    corr: texts.corr ?? randomUUID(), reply_to: texts.id ?? "0".repeat(26), trace: Object.keys(trace).length ? trace : null, priority: texts.priority ?? "normal", requires: null, payload, sig: null };
}

// Subscribes in queue group q, so that several of these share the tasks.
const url = process.env.NATS_URL ?? "127.0.0.1:4222";
const where = new URL(url.includes("//") ? url : "nats://" + url);
const conn = connect(Number(where.port || 4222), where.hostname);
const options = { verbose: false, pedantic: false, headers: true, lang: "node", version: "1", name: entity };
if (where.username) Object.assign(options, { user: decodeURIComponent(where.username), pass: decodeURIComponent(where.password) });
const publish = (to, body) => conn.write(`PUB ${to} ${Buffer.byteLength(body)}\r\n${body}\r\n`);

let buffer = Buffer.alloc(0), greeted = false;
conn.on("data", (chunk) => {
  buffer = Buffer.concat([buffer, chunk]);
  for (let end; (end = buffer.indexOf("\r\n")) >= 0;) {
    const [verb, ...args] = buffer.toString("utf8", 0, end).split(" ");
    let next = end + 2;
    if (verb === "MSG" || verb === "HMSG") {
      // MSG subject sid [reply] bytes; HMSG has the size of the headers before that of all.
      const sizes = verb === "HMSG" ? 2 : 1, size = Number(args.at(-1)), skip = verb === "HMSG" ? Number(args.at(-2)) : 0;
      if (buffer.length < next + size + 2) return; // the rest comes later
      const body = buffer.subarray(next + skip, next + size);
      next += size + 2;
      if (args.length === 3 + sizes) {
        const task = read(body);
        publish(args[2], JSON.stringify(answer(task)));
        if (task.requires?.stream) publish(args[2], ""); // the end of a stream of none
      }
    } else if (verb === "PING") conn.write("PONG\r\n");
    else if (verb === "-ERR") { console.error(args.join(" ")); process.exit(1); }
    else if (verb === "INFO" && !greeted) {
      greeted = true;
      conn.write(`CONNECT ${JSON.stringify(options)}\r\nSUB ${entity} q 1\r\nPING\r\n`);
    }
    buffer = buffer.subarray(next);
  }
});
conn.on("error", (e) => { console.error(String(e)); process.exit(1); });
conn.on("close", () => process.exit(0));
