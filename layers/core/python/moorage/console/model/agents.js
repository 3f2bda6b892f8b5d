// What forms about agents say, as the API takes it. No DOM here.

export const EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

export const ENVIRONMENTS = [
  ["openai_hosted", "a container, without network"],
  ["none", "none: the agent runs no commands"],
];

// By what a form has chosen: a kind, or a template's id.
export const environmentOf = (chosen) => (chosen === "none" || chosen === "openai_hosted" ? { type: chosen } : { type: "openai_hosted", environment_template_id: chosen });

export const message = (text) => ({ role: "user", content: [{ type: "input_text", text }] });

// "team=docs owner=ann" and back.
export const pairsOf = (text) => Object.fromEntries(text.split(/\s+/).filter((word) => word.includes("=")).map((word) => [word.slice(0, word.indexOf("=")), word.slice(word.indexOf("=") + 1)]));
export const pairsText = (metadata) => Object.entries(metadata).map(([name, value]) => `${name}=${value}`).join(" ");

// The beginnings of tools, to be filled in.
export const TOOLS = {
  "a function": { type: "function", name: "weigh", description: "The weight of a parcel.", parameters: { type: "object", properties: { parcel: { type: "string" } } } },
  "an MCP server": { type: "mcp", server_label: "depot", transport: { type: "http", server_url: "https://depot.example/mcp" } },
  "web search": { type: "web_search" },
};

// A list of tools that somebody has typed, or why it is none.
export function toolsOf(text) {
  if (!text.trim()) return { list: [], problem: "" };
  try {
    const list = JSON.parse(text);
    return Array.isArray(list) ? { list, problem: "" } : { list: [], problem: "Tools are a list: [ … ]" };
  } catch (error) {
    return { list: [], problem: `This is no JSON: ${error.message}` };
  }
}

// A tool in a few words.
export const toolName = (tool) => tool.name ?? tool.server_label ?? tool.type.replaceAll("_", " ");

// The words of a target's messages.
export const wordsOf = (input) => input.flatMap((each) => (typeof each.content === "string" ? [each.content] : each.content.map((part) => part.text ?? ""))).join("\n");

// Whether all of what a target asks for is shown, so that it can be sent back: variables, commands and contents of environments never are,
// and neither are messages with pictures, nor more than one, in a form.
export const isShownWhole = ({ agent_id, environment, input }) =>
  Boolean(agent_id) && environment.type === "none" && input.length === 1 && (typeof input[0].content === "string" || input[0].content.every((part) => part.type === "input_text"));

// A time of the reader's clock, as a field for one takes it, and back.
export const localTime = (seconds) => {
  const at = new Date(seconds * 1000);
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
};
export const secondsOf = (text) => Math.floor(new Date(text).getTime() / 1000);
