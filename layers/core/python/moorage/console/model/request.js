// What the playground's switches add up to: a request. No DOM here.

export const EFFORTS = ["", "minimal", "low", "medium", "high"];
export const MEMORIES = ["1g", "4g", "16g", "64g"];
export const START = { model: "", instructions: "", effort: "", shell: true, python: false, memory: "1g", hosts: "", skills: [], mcp: "", tokens: "", dollars: "", calls: "", asks: false };

export function requestOf(settings, text, { previous = "", files = [] } = {}) {
  const request = { model: settings.model, input: text, background: true };
  if (settings.instructions.trim()) request.instructions = settings.instructions;
  if (settings.effort) request.reasoning = { effort: settings.effort };
  if (previous) request.previous_response_id = previous;
  const tools = toolsOf(settings, files);
  if (tools.length) request.tools = tools;
  if (Number(settings.tokens)) request.max_output_tokens = Number(settings.tokens);
  const budget = {};
  if (Number(settings.dollars)) budget.usd = Number(settings.dollars);
  if (Number(settings.calls)) budget.tool_calls = Number(settings.calls);
  if (Object.keys(budget).length) request.budget = { ...budget, on_limit: "stop" };
  return request;
}

function toolsOf(settings, files) {
  const hosts = words(settings.hosts);
  const place = {};
  if (settings.memory !== "1g") place.memory_limit = settings.memory;
  if (files.length) place.file_ids = files;
  if (hosts.length) place.network_policy = { type: "allowlist", allowed_domains: hosts };
  const tools = [];
  if (settings.shell) {
    const skills = settings.skills.map((skill_id) => ({ type: "skill_reference", skill_id }));
    tools.push({ type: "shell", environment: { type: "container_auto", ...place, ...(skills.length ? { skills } : {}) }, ...(settings.asks ? { require_approval: "always" } : {}) });
  }
  if (settings.python) tools.push({ type: "code_interpreter", container: { type: "auto", ...place } });
  for (const server_url of words(settings.mcp)) tools.push({ type: "mcp", server_label: labelOf(server_url), server_url, require_approval: "never" });
  return tools;
}

const words = (text) => text.split(/[\s,]+/).filter(Boolean);

function labelOf(url) {
  try {
    return new URL(url).hostname.replace(/[^a-zA-Z0-9_-]/g, "_");
  } catch {
    return "server";
  }
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
    skills: (place.skills ?? []).map((skill) => skill.skill_id).filter(Boolean),
    mcp: tools.filter((tool) => tool.type === "mcp").map((tool) => tool.server_url).filter(Boolean).join(" "),
    tokens: request.max_output_tokens ? String(request.max_output_tokens) : "",
    dollars: "",
    calls: "",
    asks: shell?.require_approval === "always",
  };
}
