// What a model step was sent, as parts to read: what stands around the items, and the items, each with how much of it came from the cache. No DOM here.
import { printable } from "./ansi.js";

const CALLS = { function_call: (item) => `${item.name}(${item.arguments})`, custom_tool_call: (item) => `${item.name}: ${item.input}` };

// [{ id, who, text, value, tokens, isCached }]; tokens are estimates that add up to what was counted.
export function partsOf(prompt) {
  const { frame, input } = prompt.estimated_tokens;
  const estimated = frame + input.reduce((sum, each) => sum + each, 0);
  const counted = prompt.usage?.input_tokens ?? estimated;
  const cached = prompt.usage?.input_tokens_details?.cached_tokens ?? 0;
  const scale = estimated ? counted / estimated : 1;
  let upTo = 0;
  const part = (id, who, text, value, tokens) => {
    upTo += tokens * scale;
    return { id, who, text, value, tokens: Math.round(tokens * scale), isCached: cached > 0 && upTo <= cached + 0.5 };
  };
  const around = [prompt.instructions ?? "", prompt.tools.map((tool) => tool.name ?? tool.type).join(", ")].filter(Boolean).join("\n");
  const head = { instructions: prompt.instructions, tools: prompt.tools, ...prompt.parameters };
  return {
    counted: Math.round(counted),
    cached,
    parts: [part("frame", "instructions and tools", around, head, frame), ...prompt.input.map((item, at) => part(`${at}`, who(item), textOf(item), item, input[at]))],
  };
}

const who = (item) => item.role ?? item.type.replaceAll("_", " ");

function textOf(item) {
  const said = CALLS[item.type]?.(item) ?? item.content ?? item.output ?? item.summary ?? item.action?.commands?.join("\n") ?? "";
  const text = typeof said === "string" ? said : Array.isArray(said) ? said.map((part) => part.text ?? part.stdout ?? part.refusal ?? `[${part.type}]`).join("\n") : JSON.stringify(said);
  return printable(text);
}
