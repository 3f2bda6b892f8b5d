// A run as people look at it: its log with times, the rounds of its loop, and what each lane of the timeline shows. No DOM here.
import { agentOf, byAgent, inTeam, numberOf } from "./team.js";
import { duration } from "./text.js";
import { apply, empty, fold, output } from "./fold.js";

const CALLS_ELSEWHERE = new Set(["function_call", "custom_tool_call", "shell_call", "local_shell_call", "apply_patch_call", "computer_call"]);

export const isOutput = (type) => type.endsWith("_output");
// Items that come of running something here: a round ends with the last of them.
const isResult = (type) => isOutput(type) || (type.endsWith("_call") && !CALLS_ELSEWHERE.has(type));

export class Log {
  events = [];
  ats = [];
  head = empty();
  items = [];
  rounds = [];
  #current = new Map(); // by agent, its latest round
  #past = empty();

  // entries: [{ at, event }] in order; what is known already is left out.
  add(entries) {
    for (const { at, event } of entries) {
      if (event.sequence_number < this.events.length) continue;
      apply(this.head, event);
      this.events.push(event);
      this.ats.push(Math.max(at, this.ats.at(-1) ?? 0));
      this.#outline(event, this.ats.at(-1));
    }
  }

  get last() {
    return this.events.length - 1;
  }

  // The state after event number n: a fold of the log up to it.
  at(n) {
    if (n >= this.last) return this.head;
    if (this.#past.next > n + 1) this.#past = empty();
    return fold(this.events.slice(this.#past.next, n + 1), this.#past);
  }

  // The last event that was said by a moment.
  numberAt(ms) {
    let low = 0;
    let high = this.ats.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.ats[middle] <= ms) low = middle + 1;
      else high = middle;
    }
    return Math.max(0, low - 1);
  }

  #outline(event, at) {
    const number = event.sequence_number;
    const index = event.output_index;
    if (index == null) return;
    if (event.type === "response.output_item.added") {
      const type = event.item.type;
      const agent = agentOf(event);
      let round = this.#current.get(agent);
      if (!round || (!isOutput(type) && isComplete(round))) {
        round = { number: this.rounds.length, agent, nth: round ? round.nth + 1 : 0, from: number, at, items: [] };
        this.rounds.push(round);
        this.#current.set(agent, round);
      }
      const item = { index, type, round: round.number, from: number, at, to: null, endedAt: null, callId: event.item.call_id ?? null, author: event.item.author ?? null, agent, commands: [] };
      round.items.push(item);
      this.items[index] = item;
      return;
    }
    const item = this.items[index];
    if (!item) return;
    if (event.type === "response.output_item.done") {
      item.to = number;
      item.endedAt = at;
      item.callId = event.item.call_id ?? item.callId;
    } else if (event.type.startsWith("response.shell_call_output_content.")) {
      const command = (item.commands[event.command_index] ??= { from: number, at: item.at, to: null, endedAt: null, outcome: null });
      if (event.type.endsWith(".done")) Object.assign(command, { to: number, endedAt: at, outcome: event.output[0].outcome });
    }
  }
}

function isComplete(round) {
  const results = round.items.filter((item) => isResult(item.type));
  return results.length > 0 && results.every((item) => item.to !== null);
}

// What the transcript shows at event n: rounds of items as they were then.
export function transcript(log, n) {
  const state = log.at(n);
  const isPast = n < log.last;
  const shown = (mark) => {
    const isDone = mark.to !== null && (!isPast || mark.to <= n);
    const item = state.items.get(mark.index);
    return { mark, item: isDone ? item : { ...item }, isDone }; // what still grows is told from what it was by its identity
  };
  return log.rounds
    .filter((round) => round.from <= n)
    .map((round) => ({
      number: round.number,
      agent: round.agent,
      nth: round.nth,
      from: round.from,
      items: round.items.filter((mark) => mark.from <= n && state.items.has(mark.index)).map(shown),
    }))
    .filter((round) => round.items.length);
}

// --- network ---

// The servers that calls have asked for pages of the web, outside of the container's network.
const pagesOf = (log) =>
  log.events.flatMap((event, at) =>
    event.type === "response.output_item.done" && Array.isArray(event.item.hosts)
      ? event.item.hosts.map((host) => ({ id: `${event.item.id} ${host}`, created_at: Math.floor(log.ats[at] / 1000), decision: "allowed", host, method: "page", path: event.item.action?.url, secrets: [], count: 1 }))
      : [],
  );

// All that a run has reached for, in order.
export const networkOf = ({ log, egress }) => [...egress, ...pagesOf(log)].sort((one, other) => one.created_at - other.created_at);

// --- lanes ---

export function lanes({ log, steps, egress, files, sandboxes = [], versions = [], nowMs }) {
  const isFinal = log.head.isFinal;
  const begun = log.ats[0] ?? nowMs;
  const ended = isFinal ? log.ats.at(-1) : Math.max(nowMs, log.ats.at(-1) ?? 0);
  const from = Math.min(begun, ...steps.map((step) => step.started_at ?? begun).slice(0, 1));
  const model = steps.length ? steps.filter((step) => step.call_id === null).map((step) => modelBar(step, ended)).filter(Boolean) : log.rounds.map((round) => roundBar(round, ended));
  const tools = stacked([...toolBars(log, steps, ended)]);
  return {
    from,
    to: Math.max(ended, from + 1),
    rounds: log.rounds.map((round) => ({ number: round.number, at: stepOfRound(steps, round)?.started_at ?? round.at, seq: round.from })),
    model,
    tools,
    agents: byAgent(steps, (own) => ({ bars: [...model, ...tools].filter((bar) => own.includes(bar.step)), ...used(own, Infinity) })),
    messages: log.items.filter((item) => item?.author).map(({ index, from, at, author, agent }) => ({ index, seq: from, at, author, agent })),
    depth: Math.max(1, ...tools.map((bar) => bar.row + 1)),
    container: sandboxes.toReversed().map((life) => lifeBar(life, nowMs)).filter((bar) => bar.to >= from && bar.wait <= Math.max(ended, from + 1)),
    saved: versions.toReversed().filter((version) => version.at >= from && version.at <= ended).map((version) => ({ at: version.at, version })),
    egress: networkOf({ log, egress }).map((entry) => ({ at: entry.created_at * 1000, entry })),
    files: files.map((file) => ({ at: (file.created_at ?? 0) * 1000, file })),
    spent: spent(steps),
  };
}

function modelBar(step, ended) {
  if (step.started_at === null) return null;
  const to = step.ended_at ?? ended;
  return {
    kind: "model",
    step,
    wait: step.started_at - (step.queue_ms ?? 0),
    from: step.started_at,
    first: step.first_output_at ?? (step.ended_at === null ? to : step.started_at),
    to,
    isOpen: step.ended_at === null,
    isBad: step.status === "failed",
    label: inTeam(step, `model step ${numberOf(step)}${step.status === "failed" ? ", failed" : ""}`),
  };
}

const ENDS = { idle: "ended because nobody used it", lost: "was lost", failed: "never came to run", limit: "reached the end of its time" };

// A sandbox of the container: how long it took to start, how long it lived, and what became of it.
function lifeBar(life, nowMs) {
  const to = life.ended_at ?? nowMs;
  const from = life.started_at ?? to;
  const wait = life.ordered_at ?? from;
  const started = life.started_at && life.ordered_at ? `, started in ${duration(life.started_at - life.ordered_at)}` : "";
  const refused = life.refusal ? `, ${life.refusal}` : "";
  return { life, wait, from, to, isBad: life.end === "lost" || life.end === "failed", isOpen: life.ended_at === null, label: `${life.id.replace("_", " ")}: ${life.end ? ENDS[life.end] : life.status}${started}${refused}` };
}

function roundBar(round, ended) {
  const said = round.items.filter((item) => !isOutput(item.type));
  const to = said.length && said.every((item) => item.endedAt !== null) ? Math.max(...said.map((item) => item.endedAt)) : ended;
  return { kind: "model", step: null, wait: round.at, from: round.at, first: round.at, to, isOpen: false, label: `round ${round.number + 1}` };
}

// A bar for each command of a call; for what has no commands, one for the call.
function* toolBars(log, steps, ended) {
  const outputs = new Map(log.items.filter(Boolean).filter((item) => isOutput(item.type)).map((item) => [item.callId, item]));
  for (const step of steps) {
    if (step.call_id === null || step.started_at === null) continue;
    const to = step.ended_at ?? ended;
    const head = { kind: "tool", step, wait: step.started_at - (step.queue_ms ?? 0), from: step.started_at, first: step.started_at, isOpen: step.ended_at === null };
    const commands = (outputs.get(step.call_id)?.commands ?? []).filter(Boolean);
    if (!commands.length) yield { ...head, to, label: inTeam(step, step.type), isBad: step.status === "failed" };
    for (const [at, command] of commands.entries()) {
      const code = command.outcome?.exit_code;
      yield {
        ...head,
        to: Math.max(step.started_at, command.endedAt ?? to),
        isOpen: command.endedAt === null && head.isOpen,
        label: inTeam(step, `command ${at + 1}`),
        exit: command.outcome === null ? "" : command.outcome.type === "timeout" ? "timeout" : String(code),
        isBad: command.outcome !== null && code !== 0,
      };
    }
  }
}

// Bars that overlap lie below one another.
function stacked(bars) {
  const ends = [];
  for (const bar of bars.sort((a, b) => a.from - b.from)) {
    let row = ends.findIndex((end) => end <= bar.from);
    if (row < 0) row = ends.length;
    ends[row] = bar.to;
    bar.row = row;
  }
  return bars;
}

function spent(steps) {
  let tokens = 0;
  let cost = 0;
  const points = [];
  for (const step of steps) {
    if (step.ended_at === null) continue;
    tokens += step.usage?.total_tokens ?? 0;
    cost += step.cost_usd ?? 0;
    points.push({ at: step.ended_at, tokens, cost });
  }
  return points;
}

// --- what was used up to a moment ---

export function used(steps, untilMs) {
  const done = steps.filter((step) => step.ended_at !== null && step.ended_at <= untilMs + 1);
  const sum = (of) => done.reduce((total, step) => total + (of(step) ?? 0), 0);
  return {
    input: sum((step) => step.usage?.input_tokens),
    cached: sum((step) => step.usage?.input_tokens_details?.cached_tokens),
    output: sum((step) => step.usage?.output_tokens),
    cost: done.some((step) => step.cost_usd !== null) ? sum((step) => step.cost_usd) : null,
    models: done.filter((step) => step.call_id === null).length,
    tools: done.filter((step) => step.call_id !== null).length,
  };
}

// What lay between two moments: steps that had something to do in it, and what those that ended in it had used.
export function within(steps, from, to) {
  const ended = steps.filter((step) => step.ended_at !== null && step.ended_at >= from && step.ended_at <= to);
  const touched = steps.filter((step) => step.started_at !== null && step.started_at <= to && (step.ended_at ?? Infinity) >= from);
  const tools = touched.filter((step) => step.call_id !== null).length;
  return { ...used(ended, Infinity), ms: to - from, models: touched.length - tools, tools };
}

// What a compaction in a run stands for: the items before it, and the tokens that the calls around it took in.
export function shortened({ input, rounds, steps, round, index }) {
  const made = rounds.flatMap((each) => each.items).filter(({ mark }) => mark.index < index).length;
  const { agent, nth } = rounds.find((each) => each.number === round);
  const tokensOf = (at) => stepOfRound(steps, { agent, nth: at })?.usage?.input_tokens ?? null;
  return { items: input.length + made, tokens: nth > 0 ? tokensOf(nth - 1) : null, tokensAfter: tokensOf(nth + 1) };
}

export const stepOfCall = (steps, callId) => (callId ? (steps.find((step) => step.call_id === callId) ?? null) : null);

export const stepOfRound = (steps, { agent, nth }) => steps.filter((step) => step.call_id === null && agentOf(step) === agent)[nth] ?? null;

export const containerOf = (state) => {
  for (const tool of state.response?.tools ?? []) if (tool.environment?.container_id) return tool.environment.container_id;
  for (const item of output(state)) {
    const id = item.container_id ?? item.environment?.container_id;
    if (id) return id;
  }
  return null;
};

// Deltas that follow one another are one row of the list of events.
export function rowsOf(events, { isFolded = true, wanted = "" } = {}) {
  const rows = [];
  const text = wanted.trim().toLowerCase();
  for (const event of events) {
    if (text && !event.type.toLowerCase().includes(text)) continue;
    const last = rows.at(-1);
    const isSame = last && isFolded && event.type.endsWith(".delta") && last.type === event.type && last.output_index === event.output_index && last.command_index === event.command_index;
    if (isSame) {
      last.count += 1;
      last.to = event.sequence_number;
    } else rows.push({ type: event.type, output_index: event.output_index, command_index: event.command_index, from: event.sequence_number, to: event.sequence_number, count: 1 });
  }
  return rows;
}
