// What JavaScript clients do: a stream read frame by frame with the strictest of their parsers, a second turn in the same
// session, a stream taken up again, an error. It needs nothing but Node's own fetch; any failed assertion ends it with 1.
import assert from "node:assert/strict";

const base = process.env.HOB_URL;
const headers = {
  apikey: process.env.HOB_KEY,
  Authorization: `Bearer ${process.env.HOB_KEY}`,
  "Content-Type": "application/json",
};

async function call(method, path, body) {
  const answer = await fetch(base + path, { method, headers, body: body && JSON.stringify(body) });
  return { status: answer.status, body: await answer.json() };
}

// frames splits on blank lines; a frame is "data: " and JSON on one line, or a comment. Nothing else is allowed.
async function* frames(answer, prefix) {
  assert.match(answer.headers.get("content-type"), /^text\/event-stream/);
  let text = "";
  for await (const piece of answer.body.pipeThrough(new TextDecoderStream())) {
    text += piece;
    assert.ok(!text.includes("\r"), "a carriage return in the stream");
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const frame = text.slice(0, end);
      if (frame.startsWith(":")) continue;
      yield prefix(frame);
    }
  }
  assert.equal(text, "", "the stream ends inside a frame");
}

function plain(frame) {
  assert.ok(frame.startsWith("data: "), `not a plain data frame: ${frame}`);
  return JSON.parse(frame.slice("data: ".length));
}

function numbered(frame) {
  const [id, data, ...more] = frame.split("\n");
  assert.deepEqual(more, []);
  const event = plain(data);
  assert.equal(id, `id: ${event.seq}`);
  return event;
}

async function stream(agent, body) {
  const answer = await fetch(`${base}/api/agents/${agent}/run/stream`, { method: "POST", headers, body: JSON.stringify(body) });
  assert.equal(answer.status, 200);
  const events = [];
  for await (const e of frames(answer, plain)) events.push(e);
  events.forEach((e, i) => {
    assert.equal(e.seq, i + 1);
    assert.equal(e.type, e.event);
    assert.equal(e.run_id, events[0].run_id);
  });
  return events;
}

const of = (events, name) => events.filter((e) => e.event === name);

const { body: list } = await call("GET", "/api/agents?q=demo");
const agent = list.agents[0].id;

const events = await stream(agent, { message: "How many orders are open?", session_id: null, unknown_field: 1 });
assert.equal(events[0].event, "start");
const session = events[0].session_id;
const complete = events.at(-1);
assert.equal(complete.event, "complete");
assert.equal(complete.status, "completed");
assert.equal(complete.steps, 2);
assert.match(complete.content, /7 open orders/);
assert.equal(complete.tool_calls[0].tool_name, "database_query");
assert.ok(complete.usage.total_tokens > 0);
assert.deepEqual(of(events, "chunk").map((e) => e.content), [complete.content]);
const [asked] = of(events, "tool_call");
const [told] = of(events, "tool_result");
assert.equal(asked.call_id, told.call_id);
assert.equal(typeof asked.arguments.query, "string");
assert.equal(typeof told.duration_ms, "number");
assert.equal(of(events, "step_started").length, of(events, "step_completed").length);

// Another reader of the same run sees the same events, from the middle too.
for (const after of [0, 3]) {
  const again = await fetch(`${base}/api/agents/runs/${complete.run_id}/events`, { headers: { ...headers, "Last-Event-ID": `${after}` } });
  const seen = [];
  for await (const e of frames(again, numbered)) seen.push(e);
  assert.deepEqual(seen, events.slice(after));
}

// A second turn, and what was said.
await stream(agent, { message: "hello", session_id: session });
const { body: said } = await call("GET", `/api/sessions/${session}/messages`);
assert.deepEqual(said.messages.map((m) => m.role), ["user", "assistant", "user", "assistant"]);

// An answer in one piece, with the fields that clients read.
const { body: run } = await call("POST", `/api/agents/${agent}/run`, { message: "hello" });
assert.equal(run.status, "completed");
assert.equal(run.error, null);
assert.equal(typeof run.content, "string");

// Errors are JSON with error and message.
for (const [method, path, body, status] of [
  ["POST", `/api/agents/${agent}/run/stream`, {}, 400],
  ["GET", "/api/agents/00000000-0000-4000-8000-000000000000", undefined, 404],
  ["GET", `/api/agents/runs/${complete.run_id}/events?after=9999`, undefined, 400],
]) {
  const answer = await call(method, path, body);
  assert.equal(answer.status, status, path);
  assert.equal(typeof answer.body.error, "string");
  assert.equal(answer.body.message, answer.body.error);
}
console.log("ok");
