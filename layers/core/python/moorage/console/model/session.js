// A session as its page knows it: its turns and their items, added up from lists and from the events of its stream. No DOM here.

export const empty = () => ({ session: null, turns: new Map(), items: new Map(), subagents: new Map(), last: null });

// An id begins with its number, so the order of ids is that of the turns.
export const turnsOf = (state) => [...state.turns.values()].filter((turn) => !turn.subagent_id).sort((one, other) => (one.id < other.id ? -1 : 1));

// The turns of subagents within a turn, as they began. Their ids begin with its number.
const NUMBER_ENDS = "turn_".length + 8;
export const lanesOf = (state, turn) =>
  [...state.turns.values()].filter((each) => each.subagent_id && each.id.slice(0, NUMBER_ENDS) === turn.id.slice(0, NUMBER_ENDS)).sort((one, other) => one.created_at - other.created_at);

// The name of an agent of the session by its id.
export const nameOfAgent = (state, id) => state.subagents.get(id)?.name ?? (id === state.session?.agent.id ? "/root" : id);

export const itemsOf = (state, turnId) => [...state.items.values()].filter((entry) => entry.item.turn_id === turnId);

// Items of a list. One that grows is known better from the stream.
export function addItems(state, items) {
  for (const item of items) {
    const known = state.items.get(item.id);
    if (!known || known.isDone) state.items.set(item.id, { item, isDone: item.status !== "in_progress" });
  }
}

export function hear(state, event) {
  if (event.event_id) state.last = event.event_id;
  // The last turn is told from its beginning: one that is known to be over does not run again for that.
  if (event.turn && (isOver(event.turn) || !isOver(state.turns.get(event.turn.id) ?? event.turn))) state.turns.set(event.turn.id, event.turn);
  if (event.subagent) state.subagents.set(event.subagent.id, event.subagent);
  const name = event.type.replace("agent.session.turn.", "").replace("agent.output.", "");
  if (name === "item.added" || name === "item.done") {
    const isDone = name === "item.done";
    if (isDone || !state.items.get(event.item.id)?.isDone) state.items.set(event.item.id, { item: structuredClone(event.item), isDone });
    return;
  }
  const entry = state.items.get(event.item_id);
  if (!entry || entry.isDone) return;
  const { item } = entry;
  if (name === "content_part.added") item.content[event.content_index] = { ...event.part };
  else if (name === "output_text.delta" && item.content[event.content_index]) item.content[event.content_index].text += event.delta;
  else if (name === "reasoning_summary_part.added") item.summary[event.summary_index] = { ...event.part };
  else if (name === "reasoning_summary_text.delta" && item.summary[event.summary_index]) item.summary[event.summary_index].text += event.delta;
  else if (name === "command_execution_output.delta") item.output = (item.output ?? "") + event.delta;
  else return;
  state.items.set(event.item_id, { item: { ...item }, isDone: false }); // what grows is told from what it was by its identity
}

const wordsOf = (item) => item.content.map((part) => part.text ?? "").join("\n");

// What a session is about: the first words of its user, as far as its turns are known.
export const questionOf = (items) => items.filter(({ item }) => item.type === "message" && item.role === "user").map(({ item }) => wordsOf(item)).find(Boolean) ?? "";

// The message that a turn ended with; none where it did not end with one.
export function answerOf(items) {
  const last = items.at(-1)?.item;
  return last?.type === "message" && last.role === "assistant" ? last : null;
}

// The words of the console for what the Agents API says.
export const shownStatus = (status) => ({ requires_action: "waits", waiting: "waits" })[status] ?? status;

export const isOver = (turn) => ["completed", "failed", "cancelled"].includes(turn.status);

export const tookMs = (turn, nowMs) => Math.max(0, (turn.completed_at ? turn.completed_at * 1000 : nowMs) - (turn.started_at ?? turn.created_at) * 1000);

// An item as the cards of a run take it: they read arguments as a text.
export const asCard = (item) => ("arguments" in item && typeof item.arguments !== "string" ? { ...item, arguments: JSON.stringify(item.arguments) } : item);

// What a budget of a session limits, as it is shown.
export const MEASURES = [
  { id: "usd", shown: "dollars", step: "any" },
  { id: "total_tokens", shown: "tokens", step: "1" },
  { id: "tool_calls", shown: "tool calls", step: "1" },
  { id: "wall_seconds", shown: "seconds", step: "1" },
];

export const wordsOfBudget = (budget) => ({ ...Object.fromEntries(MEASURES.map(({ id }) => [id, budget?.[id] ?? ""])), on_limit: budget?.on_limit ?? "stop", rest: budget ?? {} });

// The budget of a form; null for one without limits. Limits that the form does not show stay.
export function budgetOf(words) {
  const given = MEASURES.filter(({ id }) => Number(words[id])).map(({ id }) => [id, Number(words[id])]);
  const others = Object.entries(words.rest).filter(([id]) => id !== "on_limit" && MEASURES.every((each) => each.id !== id));
  const limits = Object.fromEntries([...given, ...others]);
  return Object.keys(limits).length ? { ...limits, on_limit: words.on_limit } : null;
}
