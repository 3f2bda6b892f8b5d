// openai (Node): plain, streamed, a function's round trip, the hosted shell, a remote server, a stream that breaks,
// a webhook, a conversation, WebSocket.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import OpenAI from "openai";
import { ResponsesWebSocketSession } from "openai/lib/responses/responses-websocket-session";
import { ResponsesWS } from "openai/resources/responses/ws";
import { MODEL, call, expect, say, script, shell } from "./moorage_script.mjs";

const client = new OpenAI({ maxRetries: 0 });
const answered = await client.responses.create({ model: MODEL, input: script(say("forty-two")) });
expect(answered.output_text, "forty-two");
expect((await client.responses.retrieve(answered.id)).output_text, "forty-two");

const stream = client.responses.stream({ model: MODEL, input: script(say("one two three")) });
let text = "";
stream.on("response.output_text.delta", (event) => (text += event.delta));
expect((await stream.finalResponse()).output_text, "one two three");
expect(text, "one two three");

const tools = [{ type: "function", name: "get_weather", strict: true, parameters: {
  type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false } }];
const first = await client.responses.create({
  model: MODEL, tools, input: script(call("get_weather", { city: "Bergen" }), say("It says: {{output}}")) });
const asked = first.output.find((item) => item.type === "function_call");
const second = await client.responses.create({ model: MODEL, tools, previous_response_id: first.id,
  input: [{ type: "function_call_output", call_id: asked.call_id, output: "rain" }] });
expect(second.output_text, "It says: rain");

const ran = await client.responses.create({
  model: MODEL, tools: [{ type: "shell", environment: { type: "container_auto" } }],
  input: script(shell("echo hosted > /mnt/data/a.txt; cat /mnt/data/a.txt"), say("done")) });
expect(ran.output.find((item) => item.type === "shell_call_output").output[0].stdout, "hosted\n");
const container = ran.output.find((item) => item.type === "shell_call").environment.container_id;
const files = [];
for await (const file of client.containers.files.list(container)) files.push(file);
expect(files.map((file) => file.path), ["/mnt/data/a.txt"]);

// A skill, through its life.
const manifest = "---\nname: make-tables\ndescription: Makes tables.\n---\nBe brief.\n";
const skill = await client.skills.create({ files: [new File([manifest], "make-tables/SKILL.md")] });
await client.skills.versions.create(skill.id, { files: [new File([manifest + "Be clear.\n"], "make-tables/SKILL.md")] });
expect((await client.skills.update(skill.id, { default_version: "2" })).default_version, "2");
const skilled = await client.responses.create({
  model: MODEL, input: script(shell("tail -n 1 /home/oai/skills/make-tables-*/SKILL.md"), say("done")),
  tools: [{ type: "shell", environment: {
    type: "container_auto", skills: [{ type: "skill_reference", skill_id: skill.id }] } }] });
expect(skilled.output.find((item) => item.type === "shell_call_output").output[0].stdout, "Be clear.\n");
expect((await client.skills.delete(skill.id)).deleted, true);

// The helper for streams checks every event, and fails at what it does not expect.
const hosted = { type: "shell", environment: { type: "container_auto" } };
const depot = (require_approval) => ({ type: "mcp", server_label: "depot", require_approval });
const order = call("depot__order_part", { sku: "A-7", count: 2 });
const python = { type: "code_interpreter", container: { type: "auto" } };
const patch = { type: "update_file", path: "a.py", diff: "@@\n-a\n+b" };
const kinds = [
  [[hosted], [{ reason: "Look first.", ...shell("echo a", "echo b >&2; exit 3") }, say("done")],
    ["reasoning", "shell_call", "shell_call_output", "message"]],
  [[python], [{ python: "1 + 1" }, say("two")], ["code_interpreter_call", "message"]],
  [[{ type: "apply_patch" }], [call("apply_patch", patch)], ["apply_patch_call"]],
  [[{ type: "local_shell" }], [call("local_shell", { command: ["ls"] })], ["local_shell_call"]],
  [[{ type: "shell" }], [shell("ls", "pwd")], ["shell_call"]],
  [[{ type: "computer" }], [call("computer", { actions: [{ type: "screenshot" }] })], ["computer_call"]],
  [[{ type: "custom", name: "sql" }], [call("sql", { input: "SELECT 1" })], ["custom_tool_call"]],
  [[depot("never")], [call("depot__find_part", { sku: "A-7" }), say("there")], ["mcp_list_tools", "mcp_call", "message"]],
  [[depot("always")], [order, say("never said")], ["mcp_list_tools", "mcp_approval_request"]],
  [[{ type: "tool_search" }, { ...depot("never"), defer_loading: true }],
    [call("tool_search", { query: "look a part up" }), call("depot__find_part", { sku: "A-7" }), say("found")],
    ["mcp_list_tools", "tool_search_call", "tool_search_output", "mcp_call", "message"]],
  [[{ type: "tool_search", execution: "client" }], [call("tool_search", { query: "mail" })], ["tool_search_call"]],
];
for (const [tools, steps, types] of kinds) {
  const final = await client.responses.stream({ model: MODEL, tools, input: script(...steps) }).finalResponse();
  expect(final.output.map((item) => item.type), types);
}

// A call of a remote server that a person allows, or not.
for (const [approve, answer] of [[true, "It says: ordered 2 of A-7"], [false, "did not allow"]]) {
  const tools = [depot("always")];
  const held = await client.responses.create({ model: MODEL, tools, input: script(order, say("It says: {{output}}")) });
  const request = held.output.find((item) => item.type === "mcp_approval_request");
  const input = [{ type: "mcp_approval_response", approval_request_id: request.id, approve }];
  const streamed = client.responses.stream({ model: MODEL, tools, input, previous_response_id: held.id });
  const { output, output_text } = await streamed.finalResponse();
  assert.ok(output_text.includes(answer), output_text);
  expect(output.filter((item) => item.type === "mcp_call").map((item) => item.approval_request_id), approve ? [request.id] : []);
}

// A model whose stream breaks off in the middle of its answer is asked again, and what the helpers join says nothing twice.
const port = Number(process.env.MOORAGE_CLIENTS_PORT);
const chunk = (content, finish_reason = null) =>
  `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", model: "torn", choices: [{ index: 0, delta: { content }, finish_reason }] })}\n\n`;
let asks = 0;
const torn = createServer(async (request, response) => {
  for await (const _ of request);
  response.writeHead(200, { "content-type": "text/event-stream" });
  asks += 1;
  response.write(chunk("It is "), () => asks < 3 ? response.destroy() : response.end(`${chunk("whole.", "stop")}data: [DONE]\n\n`));
}).listen(port, "127.0.0.1");
const mended = await client.responses.stream({ model: "torn", input: "go" }).finalResponse();
expect([asks, mended.status, mended.output_text], [3, "completed", "It is whole."]);
expect((await client.responses.retrieve(mended.id)).output_text, "It is whole.");
torn.closeAllConnections();
await new Promise((resolve) => torn.close(resolve));

// A webhook: what comes is signed, and the SDK takes it.
const hook = await client.webhooks.create({
  name: "node", url: `http://localhost:${port}/hook`, event_types: ["response.completed"] });
const received = new Promise((resolve) => {
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    response.end();
    server.close();
    resolve([body, request.headers]);
  }).listen(port, "127.0.0.1");
});
const queued = await client.responses.create({ model: MODEL, input: script(say("later")), background: true });
const [body, headers] = await received;
const told = await client.webhooks.unwrap(body, headers, hook.signing_secret);
expect([told.type, told.data.id], ["response.completed", queued.id]);
const wrong = "whsec_" + Buffer.from("another").toString("base64");
await assert.rejects(client.webhooks.unwrap(body, headers, wrong), OpenAI.InvalidWebhookSignatureError);
expect((await client.webhooks.delete(hook.id)).deleted, true);

const conversation = await client.conversations.create({});
await client.responses.create({ model: MODEL, input: "hello", conversation: conversation.id });
const roles = [];
for await (const item of client.conversations.items.list(conversation.id, { order: "asc" })) roles.push(item.role);
expect(roles, ["user", "assistant"]);

// Two lanes of one WebSocket, each continued from memory.
const socket = new ResponsesWS(client);
await new Promise((resolve) => socket.socket.on("open", resolve));
const session = new ResponsesWebSocketSession(socket, { maxLanes: 2, maxBufferedEvents: 1000, maxBufferedBytes: 1e6 });
const turn = async (lane, stream_id, input, previous_response_id) => {
  socket.send({ type: "response.create", model: MODEL, store: false, stream_id, input, previous_response_id });
  for (;;) {
    const event = await lane.receive();
    if (event.type === "response.completed") return event.response;
    if (["error", "response.failed"].includes(event.type)) throw new Error(JSON.stringify(event));
  }
};
await Promise.all(["left", "right"].map(async (name) => {
  const lane = session.lane(name);
  const begun = await turn(lane, name, script(say("one"), say(name)));
  const { output } = await turn(lane, name, "go on", begun.id);
  expect(output[0].content[0].text, name);
}));
socket.close();
