// What was used: by day as a chart, by day, model, key or tool as a table, and as a file for a spreadsheet.
import { html, useRef, useState } from "../html.js";
import { all, get, saveBlob, sideBySide } from "../api.js";
import { setQuery } from "../router.js";
import { command, notify, route } from "../state.js";
import { useData } from "../ui/data.js";
import { Button, Empty, Head, Name, Problem, Skeleton, Tabs } from "../ui/parts.js";
import { Table } from "../ui/list.js";
import { Storage, useMe } from "../ui/storage.js";
import { useWidth } from "../ui/width.js";
import { quantile } from "../model/runs.js";
import { count, dollars, duration, plural } from "../model/text.js";

const DAY = 86_400_000;
const RUNS_TIMED = 300;
const RUNS_UNROLLED = 40;
const AT_ONCE = 6;
const SPANS = [7, 30, 90];
const GROUPS = [
  { id: "day", title: "By day" },
  { id: "model", title: "By model" },
  { id: "key", title: "By key" },
  { id: "tool", title: "By tool" },
];
const SPLITS = [
  { id: "", title: "whole" },
  { id: "model", title: "by model" },
  { id: "key", title: "by key" },
];
const PARTS_DRAWN = 5;
const MEASURES = {
  tokens: { title: "tokens", parts: [["in", (day) => day.input_tokens - day.cached_tokens], ["cached", (day) => day.cached_tokens], ["out", (day) => day.output_tokens]], of: (each) => each.input_tokens + each.output_tokens, show: count },
  cost: { title: "dollars", parts: [["spent", (day) => day.cost_usd ?? 0]], of: (each) => each.cost_usd ?? 0, show: dollars },
  runs: { title: "runs", parts: [["ended well", (day) => day.responses - (day.by_status.failed ?? 0)], ["failed", (day) => day.by_status.failed ?? 0]], of: (each) => each.responses, show: count },
};

export function Usage() {
  const { query } = route.value;
  const span = SPANS.includes(Number(query.days)) ? Number(query.days) : 30;
  const group = GROUPS.some((each) => each.id === query.by) ? query.by : "day";
  const measure = query.measure in MEASURES ? query.measure : "tokens";
  const from = new Date(Date.now() - (span - 1) * DAY).toISOString().slice(0, 10);
  const split = SPLITS.some((each) => each.id === query.split) ? query.split : "";
  const days = useData((signal) => get("usage", { group_by: "day", split_by: split, from }, signal), [from, split]);
  const sums = useData((signal) => get("usage", { group_by: group, from }, signal), [from, group]);
  const who = useMe();
  const file = () => saveBlob(new Blob([csvOf(sums.data.data)], { type: "text/csv" }), `usage-by-${group}.csv`);
  return html`<${Head} title="Usage" note="Added up from the responses that are kept. What was never stored is not in it."><div class="chips" role="group" aria-label="How far back">${SPANS.map((each) => html`<button type="button" key=${each} class="chip" aria-pressed=${each === span} onClick=${() => setQuery(route.value, { days: each })}>${each} days</button>`)}</div>
      <${Button} icon="download" isOff=${!sums.data?.data.length} onClick=${file}>CSV</${Button}></${Head}>
    ${days.isLoading ? html`<${Skeleton} rows=${4} />` : days.problem ? html`<${Problem} message=${days.problem} onAgain=${days.reload} />` : html`<${Totals} days=${days.data.data} /><${Took} from=${from} /><${Chart} days=${days.data.data} span=${span} measure=${measure} split=${split} />`}
    <${Storage} storage=${who.data?.storage} />
    <${Tabs} label="Added up" tabs=${GROUPS} chosen=${group} onChoose=${(by) => setQuery(route.value, { by })} />
    ${sums.isLoading ? html`<${Skeleton} rows=${4} />` : sums.problem ? html`<${Problem} message=${sums.problem} onAgain=${sums.reload} />` : sums.data.data.length ? html`<${Table} label="Usage" columns=${columns(group)} rows=${group === "day" ? [...sums.data.data].reverse() : sums.data.data} />` : html`<${Empty} title="Nothing in this time" code=${command("usage --by model")} />`}`;
}

function Totals({ days }) {
  const sum = (name) => days.reduce((total, day) => total + (day[name] ?? 0), 0);
  const input = sum("input_tokens");
  const failed = days.reduce((total, day) => total + (day.by_status.failed ?? 0), 0);
  const figures = [
    ["runs", count(sum("responses"))],
    ["failed", count(failed)],
    ["tool calls", count(sum("tool_calls"))],
    ["tokens in", count(input)],
    ["cached", input ? `${Math.round((sum("cached_tokens") / input) * 100)} %` : "0 %"],
    ["tokens out", count(sum("output_tokens"))],
    ["tokens embedded", count(days.reduce((total, day) => total + (day.embeddings?.tokens ?? 0), 0))],
    ["spent", dollars(sum("cost_usd"))],
  ];
  return html`<dl class="figures">${figures.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

// Sums know no durations: they are those of the latest runs, in whole seconds, as the list of runs has them.
function Took({ from }) {
  const runs = useData((signal) => all("responses", { created_after: Date.parse(from) / 1000 }, { most: RUNS_TIMED, signal }), [from]);
  const ended = (runs.data ?? []).filter((run) => run.ended_at !== null);
  if (!ended.length) return null;
  const took = ended.map((run) => (run.ended_at - run.created_at) * 1000);
  const shown = (share) => (quantile(took, share) < 1000 ? "< 1 s" : duration(quantile(took, share)));
  return html`<p class="line took"><span>Median run <b class="number">${shown(0.5)}</b></span><span>95th percentile <b class="number">${shown(0.95)}</b></span><span class="muted">counted over ${runs.hasMore ? "the latest " : ""}${plural(took.length, "run")}</span></p><${OfSteps} runs=${ended} />`;
}

// Steps are asked for run by run, so only when somebody wants to know.
function OfSteps({ runs }) {
  const [steps, know] = useState(null);
  const latest = runs.slice(0, RUNS_UNROLLED);
  const look = async () => {
    const answers = await sideBySide(latest, (run) => get(`responses/${run.id}/steps`, { limit: 100 }), AT_ONCE);
    const refused = answers.find((answer) => !answer.ok);
    if (refused) return notify(refused.message, "bad");
    return know(answers.flatMap((answer) => answer.data.data));
  };
  if (!steps) return html`<p class="line took"><${Button} icon="clock" onClick=${look}>Times of model and tools</${Button}><span class="muted">reads the steps of ${latest.length < runs.length ? "the latest " : ""}${plural(latest.length, "run")}</span></p>`;
  const first = steps.filter((step) => step.first_output_at && step.started_at && step.call_id === null).map((step) => step.first_output_at - step.started_at);
  const tools = steps.filter((step) => step.call_id !== null && step.ended_at && step.started_at).map((step) => step.ended_at - step.started_at);
  return html`${[["Time to first token", first, "model step"], ["Tool call", tools, "call"]].map(([what, times, of]) => times.length > 0 && html`<p class="line took" key=${of}><span>${what}: median <b class="number">${duration(quantile(times, 0.5))}</b></span><span>95th percentile <b class="number">${duration(quantile(times, 0.95))}</b></span><span class="muted">counted over ${plural(times.length, of)} of ${latest.length < runs.length ? "the latest " : ""}${plural(latest.length, "run")}</span></p>`)}
    ${!first.length && !tools.length && html`<p class="muted">None of their steps has times.</p>`}`;
}

// What the days are stacked of: kinds of the measure, or the largest models or keys with the others together.
function stackOf(days, measure, split) {
  const { parts, of } = MEASURES[measure];
  if (!split) return parts;
  const sums = new Map();
  for (const part of days.flatMap((day) => day.parts ?? [])) sums.set(part.id, (sums.get(part.id) ?? 0) + of(part));
  const names = [...sums].sort((one, other) => other[1] - one[1]).map(([name]) => name);
  const value = (wanted) => (day) => (day.parts ?? []).filter((part) => wanted(part.id)).reduce((sum, part) => sum + of(part), 0);
  const largest = names.slice(0, PARTS_DRAWN);
  const others = names.length > PARTS_DRAWN ? [["others", value((name) => !largest.includes(name))]] : [];
  return [...largest.map((name) => [name || "unknown", value((each) => each === name)]), ...others];
}

// The least round number that is not below it, whose half is round too.
function roundUp(value, isWhole) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, isWhole ? 1 : 1e-5)));
  const rounds = [1, 2, 4, 6, 8, 10, 20].map((each) => each * power);
  return rounds.find((each) => each >= value && (!isWhole || each % 2 === 0)) ?? 2;
}

const [WIDTH_MIN, LABEL] = [240, 90]; // in pixels; the last is the room of a date

function Chart({ days, span, measure, split }) {
  const { show, title } = MEASURES[measure];
  const parts = stackOf(days, measure, split);
  const known = new Map(days.map((day) => [day.id, day]));
  const names = Array.from({ length: span }, (_, at) => new Date(Date.now() - (span - 1 - at) * DAY).toISOString().slice(0, 10));
  const values = names.map((name) => parts.map(([, of]) => (known.has(name) ? of(known.get(name)) : 0)));
  const highest = Math.max(...values.map((each) => each.reduce((a, b) => a + b, 0)), 0);
  const most = roundUp(highest, measure !== "cost");
  const box = useRef(null);
  const width = useWidth(box, WIDTH_MIN);
  const step = (width - 60) / span;
  const every = Math.ceil(span / Math.max(2, Math.floor(width / LABEL)));
  return html`<figure class="chart"><figcaption class="line"><span class="chips" role="group" aria-label="What is drawn">${Object.entries(MEASURES).map(([id, each]) => html`<button type="button" key=${id} class="chip" aria-pressed=${id === measure} onClick=${() => setQuery(route.value, { measure: id })}>${each.title}</button>`)}</span>
      <span class="chips" role="group" aria-label="What it is stacked of">${SPLITS.map((each) => html`<button type="button" key=${each.id} class="chip" aria-pressed=${each.id === split} onClick=${() => setQuery(route.value, { split: each.id })}>${each.title}</button>`)}</span>
      <span class="legend">${parts.map(([name], at) => html`<span key=${name}><span class=${`part p${at}`}></span><${Name}>${name}</${Name}></span>`)}</span></figcaption>
    <div ref=${box}><svg width=${width} height="170" role="img" aria-label=${`${title} by day, at most ${show(highest) || 0}`}>
      ${highest === 0 && html`<text class="axis-text" x=${width / 2 + 17} y="84" text-anchor="middle">Nothing yet</text>`}
      ${[0, 0.5, 1].map((share) => html`<g key=${share}><line class="axis" x1="44" x2=${width - 10} y1=${140 - share * 120} y2=${140 - share * 120} /><text class="axis-text" aria-hidden="true" x="38" y=${144 - share * 120} text-anchor="end">${share || measure !== "cost" ? show(most * share).replace(".0k", "k") : "$0"}</text></g>`)}
      ${values.map((each, at) => {
        let top = 140;
        return html`<g key=${names[at]}><title>${`${names[at]}: ${parts.map(([name], part) => `${show(each[part]) || 0} ${name}`).join(", ")}`}</title>
          ${each.map((value, part) => {
            const height = (value / most) * 120;
            top -= height;
            return height > 0 && html`<rect key=${part} class=${`part p${part}`} x=${48 + at * step} y=${top} width=${Math.max(1, step - 2)} height=${height} rx="1" />`;
          })}</g>`;
      })}
      ${names.map((name, at) => (at % every === 0 ? html`<text key=${name} class="axis-text" aria-hidden="true" x=${48 + at * step} y="158">${name.slice(5)}</text>` : null))}
    </svg></div></figure>`;
}

const columns = (group) => [
  { title: { day: "Day", model: "Model", key: "Key", tool: "Tool" }[group], cell: (row) => html`<span class=${group === "key" ? "mono" : ""}>${row.id || "unknown"}</span>` },
  { title: "Runs", right: true, cell: (row) => count(row.responses) },
  { title: "Failed", right: true, cell: (row) => (row.by_status.failed ? html`<span class="bad">${row.by_status.failed}</span>` : "") },
  { title: "Calls", right: true, cell: (row) => count(row.tool_calls) },
  ...(group === "tool"
    ? []
    : [
        { title: "Tokens in", right: true, cell: (row) => count(row.input_tokens) },
        { title: "Cached", right: true, cell: (row) => (row.input_tokens ? `${Math.round((row.cached_tokens / row.input_tokens) * 100)} %` : "") },
        { title: "Tokens out", right: true, cell: (row) => count(row.output_tokens) },
        { title: "Embedded", right: true, cell: (row) => html`<span title=${`${plural(row.embeddings?.requests ?? 0, "request")} for embeddings`}>${count(row.embeddings?.tokens)}</span>` },
        { title: "Cost", right: true, cell: (row) => ((row.unpriced_responses || row.embeddings?.unpriced_requests) && !row.cost_usd ? html`<span class="muted" title="price in models.toml says it">no price</span>` : dollars(row.cost_usd)) },
      ]),
];

const FIELDS = ["id", "responses", "tool_calls", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "embedding_tokens", "cost_usd"];
// A name that a spreadsheet would take for a formula is one for nobody.
const cell = (value) => (/^[=+\-@\t\r]/.test(String(value)) && typeof value === "string" ? `'${value}` : String(value ?? "")).replace(/^(.*[",\n].*)$/s, (text) => `"${text.replaceAll('"', '""')}"`);
const csvOf = (rows) => `${[FIELDS.join(","), ...rows.map((row) => FIELDS.map((name) => cell(name === "embedding_tokens" ? row.embeddings?.tokens : row[name])).join(","))].join("\n")}\n`;
