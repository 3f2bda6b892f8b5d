// Reads turns of a session by the helpers of openai-node: one by the stream of a create, one by the stream of the session, and one that
// waits for a person. Takes the inputs of the turns as JSON, and prints what it has read and done as JSON.
import OpenAI from "openai";

const { first, second, third, depot } = JSON.parse(process.argv[2]);
const client = new OpenAI({ maxRetries: 0 });
const sessions = client.beta.agents.sessions;
const weighed = [];
const toolHandlers = {
  weigh: (given) => {
    weighed.push(given);
    return "3 kg";
  },
};
const parameters = { type: "object", properties: { parcel: { type: "string" } } };
const tools = [
  { type: "function", name: "weigh", description: "The weight of a parcel.", parameters },
  { type: "mcp", server_label: "depot", transport: { type: "http", server_url: depot }, require_approval: "always" },
];
const heard = [];
const texts = [];

async function read(stream) {
  stream.withResultCollection();
  for await (const event of stream) {
    heard.push([event.event_id, event.type]);
    if (event.type === "agent.session.created") id = event.session.id;
    if (event.type !== "agent.session.requires_action") continue;
    for (const action of event.session.required_actions.filter((each) => each.type === "mcp_approval_request")) {
      const response = { type: "mcp_tool_call", decision: "approve" };
      const answer = { type: "agent.session.input.mcp_approval_request_result", request_id: action.request_id, response };
      await sessions.events.create(id, { events: [answer] });
    }
  }
  texts.push((await stream.finalResult()).output_text);
}

let id;
const agent = { model: "demo", tools };
await read(await sessions.create({ agent, environment: { type: "openai_hosted" }, input: first, stream: true, toolHandlers }));
await read(sessions.stream(id, { input: second, toolHandlers }));
await read(sessions.stream(id, { input: third, toolHandlers }));
console.log(JSON.stringify({ id, heard, texts, weighed }));
