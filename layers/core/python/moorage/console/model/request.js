// What the playground's switches add up to: a request. No DOM here.

export const EFFORTS = ["", "minimal", "low", "medium", "high"];
export const MEMORIES = ["1g", "4g", "16g", "64g"];
export const START = { model: "", instructions: "", effort: "", shell: true, python: false, memory: "1g", hosts: "", secrets: "", skills: [], stores: [], web: false, image: false, mcp: "", tokens: "", dollars: "", calls: "", asks: false };

// Addresses of remote servers may hold keys, and their tokens are some: neither is kept for the next visit.
export const toKeep = ({ mcp, ...settings }) => settings;

// `tokens` open remote servers, by their labels.
export function requestOf(settings, text, { previous = "", files = [], tokens = {} } = {}) {
  const request = { model: settings.model, input: text, background: true };
  if (settings.instructions.trim()) request.instructions = settings.instructions;
  if (settings.effort) request.reasoning = { effort: settings.effort };
  if (previous) request.previous_response_id = previous;
  const tools = toolsOf(settings, files, tokens);
  if (tools.length) request.tools = tools;
  const include = tools.map((tool) => INCLUDED[tool.type]).filter(Boolean);
  if (include.length) request.include = include;
  if (Number(settings.tokens)) request.max_output_tokens = Number(settings.tokens);
  const budget = {};
  if (Number(settings.dollars)) budget.usd = Number(settings.dollars);
  if (Number(settings.calls)) budget.tool_calls = Number(settings.calls);
  if (Object.keys(budget).length) request.budget = { ...budget, on_limit: "stop" };
  return request;
}

const INCLUDED = { file_search: "file_search_call.results", web_search: "web_search_call.results" };
export const WEB = { type: "web_search" };
export const IMAGE = { type: "image_generation" };
export const searchOf = (stores) => ({ type: "file_search", vector_store_ids: stores });

// As the server compares them (moorage/hosts.py).
const covers = (pattern, host) => pattern === "*" || (pattern.startsWith("*.") ? host.endsWith(pattern.slice(1)) && host !== pattern.slice(1) : pattern === host);

// Those of the hosts that the operator's ceiling does not have: a request with them is refused.
export const beyond = (hosts, ceiling) => words(hosts).filter((host) => !ceiling.some((pattern) => covers(pattern, host.toLowerCase())));

// The container that commands run in. "GITHUB_TOKEN@api.github.com" is the operator's secret of that name: values have no place here.
function placeOf(settings, files) {
  const hosts = words(settings.hosts);
  const domain_secrets = words(settings.secrets).map((word) => ({ domain: word.split("@").slice(1).join("@"), name: word.split("@")[0] }));
  const place = {};
  if (settings.memory !== "1g") place.memory_limit = settings.memory;
  if (files.length) place.file_ids = files;
  if (hosts.length) place.network_policy = { type: "allowlist", allowed_domains: hosts, ...(domain_secrets.length ? { domain_secrets } : {}) };
  return place;
}

function toolsOf(settings, files, tokens) {
  const place = placeOf(settings, files);
  const asking = settings.asks ? { require_approval: "always" } : {};
  const tools = [];
  if (settings.shell) {
    const skills = settings.skills.map((skill_id) => ({ type: "skill_reference", skill_id }));
    tools.push({ type: "shell", environment: { type: "container_auto", ...place, ...(skills.length ? { skills } : {}) }, ...asking });
  }
  if (settings.python) tools.push({ type: "code_interpreter", container: { type: "auto", ...place }, ...asking });
  if (settings.web) tools.push({ ...WEB, ...asking });
  if (settings.image) tools.push({ ...IMAGE, ...asking });
  if (settings.stores.length) tools.push({ ...searchOf(settings.stores), ...asking });
  for (const server of serversOf(settings.mcp)) tools.push({ ...server, ...(tokens[server.server_label] ? { authorization: tokens[server.server_label] } : {}), require_approval: settings.asks ? "always" : "never" });
  return tools;
}

const words = (text) => text.split(/[\s,]+/).filter(Boolean);

// Servers by their addresses, or by the labels of those that the operator has named; each under a label of its own.
export function serversOf(text) {
  const taken = new Set();
  return [...new Set(words(text))].map((word) => {
    const isAddress = word.includes(":");
    const start = isAddress ? labelOf(word) : word;
    let server_label = start;
    for (let number = 2; taken.has(server_label); number += 1) server_label = `${start}_${number}`;
    taken.add(server_label);
    return { type: "mcp", server_label, ...(isAddress ? { server_url: word } : {}) };
  });
}

function labelOf(url) {
  let name = "";
  try {
    name = new URL(url).hostname || new URL(url).pathname;
  } catch {
    // It is refused when it is sent.
  }
  const label = name.replace(/[^a-zA-Z0-9_-]/g, "_");
  return /^[a-zA-Z]/.test(label) ? label : `server_${label}`;
}

// The switches of a request, as far as there are any for what it says.
export function settingsOf(request) {
  const tools = request.tools ?? [];
  const shell = tools.find((tool) => tool.type === "shell");
  const python = tools.find((tool) => tool.type === "code_interpreter");
  const place = shell?.environment ?? python?.container ?? {};
  return {
    ...START,
    model: request.model ?? "",
    instructions: typeof request.instructions === "string" ? request.instructions : "",
    effort: request.reasoning?.effort ?? "",
    shell: Boolean(shell),
    python: Boolean(python),
    memory: place.memory_limit ?? "1g",
    hosts: (place.network_policy?.allowed_domains ?? []).join(" "),
    secrets: (place.network_policy?.domain_secrets ?? []).map((secret) => `${secret.name}@${secret.domain}`).join(" "),
    skills: (place.skills ?? []).map((skill) => skill.skill_id).filter(Boolean),
    stores: tools.find((tool) => tool.type === "file_search")?.vector_store_ids ?? [],
    web: tools.some((tool) => tool.type.startsWith("web_search")),
    image: tools.some((tool) => tool.type === "image_generation"),
    mcp: tools.filter((tool) => tool.type === "mcp").map((tool) => tool.server_url ?? tool.server_label).join(" "),
    tokens: request.max_output_tokens ? String(request.max_output_tokens) : "",
    dollars: "",
    calls: "",
    asks: tools.some((tool) => tool.require_approval === "always"),
  };
}
