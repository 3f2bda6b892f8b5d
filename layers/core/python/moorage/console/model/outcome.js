// What a run was asked for, and what came of it. No DOM here.
import { output } from "./fold.js";
import { isOutput } from "./run.js";

const textOf = (content) => (typeof content === "string" ? content : (content ?? []).map((part) => part.text ?? "").join("\n"));

const firstLine = (text) => text.split("\n").map((line) => line.trim()).find(Boolean) ?? "";

// The first line of a text; that before a block of code, where there is any.
export const headline = (text) => firstLine(text.split("```")[0]) || firstLine(text.replace(/^```.*$/gm, ""));

// A run's title is what its user asked last.
export function titleOf(input) {
  const asked = input.findLast((item) => (item.type ?? "message") === "message" && item.role === "user");
  return asked ? headline(textOf(asked.content)) : "";
}

// The message that a run ended with; none where it ended with a call that its caller answers.
export function answerOf(state) {
  const last = output(state).at(-1);
  return last?.type === "message" ? last : null;
}

// What a run has made in its container and its answer does not name.
export function madeBy({ response, files }, answer) {
  const named = new Set((answer?.content ?? []).flatMap((part) => part.annotations ?? []).map((note) => note.file_id));
  return files.filter((file) => file.source === "assistant" && (file.created_at ?? 0) >= response.created_at && !named.has(file.id));
}

// Of each call, by its id: its first words, and how its commands ended.
export function callsOf(state) {
  const calls = new Map();
  for (const item of output(state)) {
    if (!item.call_id && !item.id) continue;
    const key = item.call_id ?? item.id;
    if (isOutput(item.type)) {
      const ends = (Array.isArray(item.output) ? item.output : []).map((one) => one.outcome).filter(Boolean);
      const bad = ends.find((end) => end.type === "timeout" || end.exit_code !== 0);
      if (calls.has(key)) Object.assign(calls.get(key), { end: !ends.length ? "" : !bad ? "exit 0" : bad.type === "timeout" ? "timed out" : `exit ${bad.exit_code}`, isBad: Boolean(bad) });
    } else if (item.type !== "message") calls.set(key, { words: firstLine(wordsOf(item)), end: "", isBad: Boolean(item.error) });
  }
  return calls;
}

const wordsOf = (item) =>
  item.action?.commands?.[0] ?? item.action?.query ?? item.action?.url ?? item.code ?? item.queries?.[0] ?? (item.name && `${item.name} ${item.arguments ?? item.input ?? ""}`) ?? "";
