// An agent in Node.js, after docs/nats-binding.md alone: it counts words.
//
//   npm install && node agent.mjs          # NATS_URL says where, default 127.0.0.1:4222
//   aeemesh send agent.counter '{"text":"three little words"}'
import { connect, headers } from "@nats-io/transport-node";
import { Svcm } from "@nats-io/services";
import { randomUUID } from "node:crypto";

const entity = "agent.counter";
const nc = await connect({ servers: process.env.NATS_URL ?? "127.0.0.1:4222", name: entity });
const service = await new Svcm(nc).add({
  name: "agent-counter", version: "1.0.0", description: "Counts words",
  metadata: { entity, aee_version: "1", intents: "aee.status.ping,text.count" },
});

const required = ["id", "ts", "type", "from", "to", "intent", "corr", "priority"];
const intents = {
  "aee.status.ping": () => ({ pong: true }),
  "text.count": (p) => ({ words: (p.text ?? "").split(/\s+/).filter(Boolean).length }),
};

function answer(task) {
  const missing = required.filter((name) => typeof task[name] !== "string");
  if (missing.length || task.v !== "1" || task.payload?.constructor !== Object) throw { code: "E_INVALID_ENVELOPE", message: `missing or wrong: ${missing.join(", ") || "v or payload"}` };
  if (task.to !== entity) throw { code: "E_WRONG_RECIPIENT", message: `this is ${entity}` };
  if (task.type !== "task") throw { code: "E_UNEXPECTED_TYPE", message: "this subject takes tasks" };
  return (intents[task.intent] ?? intents["text.count"])(task.payload);
}

service.addEndpoint("task", { subject: entity, handler: (err, msg) => {
  if (err || !msg.reply?.startsWith("_")) return; // answered on inboxes only
  let task = {}, type = "result", payload, h;
  try { task = Object(msg.json()); payload = answer(task); } catch (e) {
    type = "error"; h = headers();
    payload = { code: e.code ?? "E_INVALID_ENVELOPE", message: e.code ? e.message : "the body is no JSON", retryable: false };
    h.set("Nats-Service-Error", payload.message); h.set("Nats-Service-Error-Code", payload.code);
  }
  msg.respond(JSON.stringify({ v: "1", id: randomUUID(), ts: new Date().toISOString(), type, from: entity, to: task.from || "unknown",
    intent: task.intent ?? "mesh.envelope.refused", corr: task.corr ?? randomUUID(), reply_to: task.id ?? "0".repeat(26), trace: task.trace ?? null,
    priority: task.priority ?? "normal", requires: null, payload, sig: null }), { headers: h });
  if (task.requires?.stream) msg.respond(""); // the end of a stream of none
} });
