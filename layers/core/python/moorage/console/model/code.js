// A request as a program of one's own. No DOM here.


// What of a response goes into a request that repeats it.
export function requestOf(response, input) {
  const kept = { model: response.model, input: simple(input) };
  for (const name of ["instructions", "tools", "tool_choice", "reasoning", "max_output_tokens", "temperature", "top_p", "background", "previous_response_id"]) {
    const value = response[name];
    if (value == null || (Array.isArray(value) && !value.length) || (name === "tool_choice" && value === "auto") || value === false) continue;
    if (name === "reasoning" && !Object.values(value).some((each) => each != null)) continue;
    if ((name === "temperature" || name === "top_p") && value === 1) continue;
    kept[name] = name === "tools" ? value.map(toolOf) : value;
  }
  return kept;
}

function toolOf(tool) {
  const kept = Object.fromEntries(Object.entries(tool).filter(([, value]) => value != null));
  // The container of a run that is over may be gone: a new run gets its own.
  if (kept.environment?.type === "container_reference") kept.environment = { type: "container_auto" };
  return kept;
}

function simple(items) {
  const texts = items.map((item) => (item.role === "user" ? (Array.isArray(item.content) ? item.content : [{ type: "input_text", text: item.content }]) : null));
  if (texts.length === 1 && texts[0]?.every((part) => part.type === "input_text")) return texts[0].map((part) => part.text).join("\n");
  return items.map(({ id, status, ...rest }) => rest);
}

export function python(request, url) {
  const fields = Object.entries(request).filter(([name]) => isOpenAis(name)).map(([name, value]) => `    ${name}=${pythonValue(value, 1)},`);
  const others = Object.fromEntries(Object.entries(request).filter(([name]) => !isOpenAis(name)));
  if (Object.keys(others).length) fields.push(`    extra_body=${pythonValue(others, 1)},`);
  return `import os

from openai import OpenAI

client = OpenAI(base_url=${JSON.stringify(url)}, api_key=os.environ["OPENAI_API_KEY"])
response = client.responses.create(
${fields.join("\n")}
)
print(response.output_text)`;
}

export function node(request, url) {
  return `import OpenAI from "openai";

const client = new OpenAI({ baseURL: ${JSON.stringify(url)}, apiKey: process.env.OPENAI_API_KEY });
const response = await client.responses.create(${JSON.stringify(request, null, 2)});
console.log(response.output_text);`;
}

export function curl(request, url) {
  const body = JSON.stringify(request, null, 2).replaceAll("'", "'\\''");
  return `curl ${url}/responses \\
  -H "Authorization: Bearer $OPENAI_API_KEY" \\
  -H "Content-Type: application/json" \\
  -d '${body}'`;
}

const isOpenAis = (name) => name !== "budget";

function pythonValue(value, depth) {
  const inner = "    ".repeat(depth + 1);
  const outer = "    ".repeat(depth);
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value === "string") return JSON.stringify(value).replace(/[\u2028\u2029]/g, (mark) => `\\u${mark.charCodeAt(0).toString(16)}`);
  if (typeof value !== "object") return String(value);
  const entries = Array.isArray(value) ? value.map((each) => pythonValue(each, depth + 1)) : Object.entries(value).map(([key, each]) => `${JSON.stringify(key)}: ${pythonValue(each, depth + 1)}`);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  const line = `${open}${entries.join(", ")}${close}`;
  return line.length < 80 && !line.includes("\n") ? line : `${open}\n${entries.map((each) => `${inner}${each},`).join("\n")}\n${outer}${close}`;
}
