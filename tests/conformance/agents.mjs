// Calls each method of openai-node's resources for agents and vaults once, through the layer of placeholders.py.
// Prints a JSON object: the reason why an operation failed, or null, by the operation's name.
import OpenAI from "openai";

const client = new OpenAI({ maxRetries: 0 });
const message = { role: "user", content: [{ type: "input_text", text: "x" }] };
const target = { type: "new_session", environment: { type: "none" }, input: [message] };
const auth = { type: "static_bearer", mcp_server_url: "mcp_server_url", token: "token" };
const session = { session_id: "session_id" };
const approval = {
  type: "agent.session.input.mcp_approval_request_result",
  request_id: "request_id",
  response: { type: "mcp_tool_call", decision: "approve" },
};
// What a method is called with, and the 'object' of its answer.
const calls = {
  "agents.create": [[{ model: "model" }], "agent"],
  "agents.retrieve": [["agent_id"], "agent"],
  "agents.update": [["agent_id", { instructions: "instructions" }], "agent"],
  "agents.list": [[{ limit: 1 }], "agent"],
  "agents.delete": [["agent_id"], "agent.deleted"],
  "agents.sessions.create": [[{ environment: { type: "none" } }], "agent.session"],
  "agents.sessions.retrieve": [["session_id"], "agent.session"],
  "agents.sessions.update": [["session_id", { metadata: { foo: "string" } }], "agent.session"],
  "agents.sessions.list": [[{ agent_id: "agent_id" }], "agent.session"],
  "agents.sessions.events.create": [["session_id", { events: [approval] }], null],
  "agents.sessions.events.stream": [["session_id"], "stream"],
  "agents.sessions.items.list": [["session_id"], null],
  "agents.sessions.turns.list": [["session_id"], "agent.session.turn"],
  "agents.sessions.turns.retrieve": [["turn_id", session], "agent.session.turn"],
  "agents.sessions.turns.items.list": [["turn_id", session], null],
  "agents.sessions.traces.list": [["session_id"], "agent.session.trace"],
  "agents.sessions.artifacts.list": [["session_id"], "agent.session.artifact"],
  "agents.sessions.artifacts.retrieve": [["artifact_id", session], "agent.session.artifact"],
  "agents.sessions.artifacts.content": [["artifact_id", session], "bytes"],
  "agents.sessions.artifacts.delete": [["artifact_id", session], "agent.session.artifact.deleted"],
  "agents.sessions.subagents.list": [["session_id"], "agent.session.subagent"],
  "agents.sessions.subagents.retrieve": [["subagent_id", session], "agent.session.subagent"],
  "agents.sessions.subagents.items.list": [["subagent_id", session], null],
  "agents.sessions.subagents.turns.list": [["subagent_id", session], "agent.session.turn"],
  "agents.sessions.subagents.turns.retrieve": [["turn_id", { ...session, subagent_id: "subagent_id" }], "agent.session.turn"],
  "agents.sessions.subagents.turns.items.list": [["turn_id", { ...session, subagent_id: "subagent_id" }], null],
  "agents.sessions.delete": [["session_id"], "agent.session.deleted"],
  "agents.environments.create": [[{ environment: { type: "openai_hosted" } }], "agent.environment"],
  "agents.environments.retrieve": [["environment_id"], "agent.environment"],
  "agents.environments.list": [[{ type: "openai_hosted" }], "agent.environment"],
  "agents.environments.files.create": [["environment_id", { type: "inline", path: "x", data: "data" }], "agent.environment.file"],
  "agents.environments.files.list": [["environment_id", { path: "path" }], "agent.environment.file"],
  "agents.environments.templates.create": [[{ name: "x" }], "agent.environment.template"],
  "agents.environments.templates.retrieve": [["environment_template_id"], "agent.environment.template"],
  "agents.environments.templates.update": [["environment_template_id", { name: "y" }], "agent.environment.template"],
  "agents.environments.templates.list": [[], "agent.environment.template"],
  "agents.environments.templates.delete": [["environment_template_id"], "agent.environment.template.deleted"],
  "agents.automations.create": [[{ type: "periodic", name: "x", expression: "x", timezone: "x", target }], "agent.automation"],
  "agents.automations.retrieve": [["automation_id"], "agent.automation"],
  "agents.automations.update": [["automation_id", { name: "y" }], "agent.automation"],
  "agents.automations.list": [[], "agent.automation"],
  "agents.automations.pause": [["automation_id"], "agent.automation"],
  "agents.automations.resume": [["automation_id"], "agent.automation"],
  "agents.automations.invocations.create": [["automation_id"], "agent.automation.invocation"],
  "agents.automations.invocations.retrieve": [["invocation_id", { automation_id: "automation_id" }], "agent.automation.invocation"],
  "agents.automations.invocations.list": [["automation_id"], "agent.automation.invocation"],
  "agents.automations.delete": [["automation_id"], "agent.automation.deleted"],
  "agents.vaults.create": [[{ name: "x" }], "vault"],
  "agents.vaults.retrieve": [["vault_id"], "vault"],
  "agents.vaults.update": [["vault_id", { name: "y" }], "vault"],
  "agents.vaults.list": [[{ status: "active" }], "vault"],
  "agents.vaults.credentials.create": [["vault_id", { name: "y", auth }], "vault.credential"],
  "agents.vaults.credentials.retrieve": [["credential_id", { vault_id: "vault_id" }], "vault.credential"],
  "agents.vaults.credentials.update": [["credential_id", { vault_id: "vault_id", metadata: {} }], "vault.credential"],
  "agents.vaults.credentials.list": [["vault_id"], "vault.credential"],
  "agents.vaults.credentials.delete": [["credential_id", { vault_id: "vault_id" }], "vault.credential.deleted"],
  "agents.vaults.delete": [["vault_id"], "vault.deleted"],
};
// Helpers of the client's, which have no operation of their own.
const helpers = new Set([
  "agents.sessions.stream", "agents.sessions.artifacts.forResult", "agents.environments.files.prepare",
  "agents.environments.files.prepareDirectory", "agents.environments.files.upload",
]);

function methods(resource, name) {
  const own = Object.getOwnPropertyNames(Object.getPrototypeOf(resource)).filter((key) => key !== "constructor" && !key.startsWith("_"));
  const inner = Object.entries(resource).filter(([key, value]) => !key.startsWith("_") && value?._client !== undefined);
  return [...own.map((key) => `${name}.${key}`), ...inner.flatMap(([key, value]) => methods(value, `${name}.${key}`))];
}

async function called(operation, args, object) {
  const path = operation.split(".").slice(1);
  const method = path.pop();
  const resource = path.reduce((at, key) => at[key], client.beta.agents);
  const answer = await resource[method](...args);
  if (object === "stream") return answer.controller.abort();
  if (object === "bytes") return (await answer.arrayBuffer()).byteLength > 0 ? null : Promise.reject(new Error("no bytes"));
  const one = method === "list" ? answer.data[0] : answer;
  if (object !== null && one?.object !== object) throw new Error(`'${one?.object}' instead of '${object}'`);
}

const outcomes = {};
for (const operation of methods(client.beta.agents, "agents")) {
  if (!(operation in calls) && !helpers.has(operation)) outcomes[operation] = "agents.mjs does not know it";
}
for (const [operation, [args, object]] of Object.entries(calls)) {
  outcomes[operation] = await called(operation, args, object).then(() => null, (error) => String(error).slice(0, 300));
}
console.log(JSON.stringify(outcomes));
process.exit(0);
