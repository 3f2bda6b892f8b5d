// What stands behind a run: its steps, its log, its files, its network, its cost, and the object itself. All as of the cursor.
import { html, useMemo, useState } from "../html.js";
import { get, save, saveBlob } from "../api.js";
import { notify, typed } from "../state.js";
import { address } from "../router.js";
import { bytes, clock, count, dollars, duration } from "../model/text.js";
import { callsOf } from "../model/outcome.js";
import { networkOf, rowsOf, used } from "../model/run.js";
import { agentOf, byAgent } from "../model/team.js";
import { asOf, changed } from "./changes.js";
import { useData } from "./data.js";
import { FileLink } from "./file_link.js";
import { Json } from "./json.js";
import { Button, Id, Name, Status, Tabs, Ticking } from "./parts.js";
import { RawButton } from "./cards.js";
import { lazy } from "./lazy.js";
import { Rows } from "./virtual.js";

const Diff = lazy(() => import("./diff.js"), "Diff");
const Sent = lazy(() => import("./prompt.js"), "Sent");

const TABS = ["step", "events", "files", "network", "cost", "raw"];

export function Inspector({ run, tab, onTab, step, cursor, onCursor, onStep }) {
  const reached = useMemo(() => networkOf(run).length, [run.log.last, run.egress]);
  const counts = { events: run.log.last + 1, files: run.files.length || null, network: reached || null, step: run.steps.length || null };
  const tabs = TABS.map((id) => ({ id, title: id[0].toUpperCase() + id.slice(1), count: counts[id] }));
  const View = { step: Steps, events: Events, files: Files, network: Network, cost: Cost, raw: Raw }[tab] ?? Steps;
  return html`<aside class="inspector" aria-label="Details"><${Tabs} label="Details" tabs=${tabs} chosen=${TABS.includes(tab) ? tab : "step"} onChoose=${onTab} />
    <div class="inside" role="tabpanel" aria-label=${tab}><${View} run=${run} step=${step} cursor=${cursor} onCursor=${onCursor} onStep=${onStep} /></div></aside>`;
}

function Prompt({ runId, step }) {
  const [isOpen, open] = useState(false);
  return html`<div class="prompt"><button type="button" class="button" aria-expanded=${isOpen} onClick=${() => open(!isOpen)}>Prompt as sent</button>
    ${isOpen && html`<${Sent} runId=${runId} step=${step} />`}</div>`;
}

function Steps({ run, step, onStep }) {
  const calls = useMemo(() => callsOf(run.log.head), [run.log.last]);
  if (!run.steps.length) return html`<p class="muted pad">Steps show when the first of them is known.</p>`;
  const models = run.steps.filter((each) => each.call_id === null);
  return html`<div class="pad"><ol class="steps">${run.steps.map(
    (each) => html`<li key=${each.id}><button type="button" class=${`step-row ${each.call_id ? "of-tool" : ""}`} aria-pressed=${step?.id === each.id} onClick=${() => onStep(each)}>
      <${StepName} step=${each} call=${calls.get(each.call_id)} round=${models.indexOf(each) + 1} />
      <span class="number">${each.started_at && each.ended_at ? duration(each.ended_at - each.started_at) : each.started_at ? html`<${Ticking} since=${each.started_at} />` : ""}</span></button>
      ${step?.id === each.id && html`<${StepFacts} run=${run} step=${each} />`}</li>`,
  )}</ol></div>`;
}

// A call by what it runs, and by how that ended.
function StepName({ step, call, round }) {
  const kind = step.type.replace(/_call$/, "").replaceAll("_", " ");
  const isBad = step.status === "failed" || call?.isBad;
  const end = call?.end && call.end !== "exit 0" ? call.end : step.status === "failed" ? "failed" : "";
  return html`<span class=${`step-name ${isBad ? "bad" : ""}`}>${step.call_id === null ? `Model · round ${round}` : call?.words ? html`<span class="muted">${kind}</span> <code><${Name}>${call.words}</${Name}></code>` : kind}</span>
    ${end && html`<span class=${isBad ? "bad" : "muted"}>${end}</span>`}`;
}

function StepFacts({ run, step }) {
  const facts = [
    ["status", html`<${Status} status=${step.status} />`],
    ["call", step.call_id && html`<${Id} id=${step.call_id} />`],
    ["began", step.started_at && clock(step.started_at)],
    ["waited in queue", step.queue_ms ? duration(step.queue_ms) : null],
    ["first token after", step.first_output_at && step.started_at ? duration(step.first_output_at - step.started_at) : null],
    ["took", step.ended_at && step.started_at ? duration(step.ended_at - step.started_at) : null],
    ["attempts", `${step.attempts.count}${step.attempts.lost ? `, ${step.attempts.lost} lost with their process` : ""}${step.attempts.pauses ? `, ${step.attempts.pauses} paused` : ""}`],
    ["retried because", step.attempts.why],
    ["tokens in", step.usage && count(step.usage.input_tokens)],
    ["cached", step.usage?.input_tokens_details?.cached_tokens ? count(step.usage.input_tokens_details.cached_tokens) : null],
    ["tokens out", step.usage && count(step.usage.output_tokens)],
    ["cost", dollars(step.cost_usd)],
    ["upstream request id", step.upstream_request_id && html`<${Id} id=${step.upstream_request_id} whole=${true} />`],
    ["waits for", step.waiting_for && html`${step.waiting_for.kind}: ${typed(step.waiting_for.detail)} (<${Ticking} since=${step.waiting_for.since} />)`],
  ];
  return html`<dl class="facts">${facts.filter(([, value]) => value).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    ${step.call_id === null && html`<${Prompt} key=${step.id} runId=${run.id} step=${step} />`}`;
}

function Events({ run, cursor, onCursor }) {
  const [wanted, want] = useState("");
  const [isFolded, fold] = useState(true);
  const { log } = run;
  const rows = useMemo(() => rowsOf(log.events, { isFolded, wanted }), [log.last, isFolded, wanted]);
  const at = rows.findIndex((row) => row.from <= cursor && cursor <= row.to);
  const event = log.events[Math.min(cursor, log.last)];
  return html`<div class="events"><div class="pad line">
      <input type="search" data-filter aria-label="Filter events by type" placeholder="type…" value=${wanted} onInput=${(pressed) => want(pressed.target.value)} />
      <button type="button" class="chip" aria-pressed=${isFolded} onClick=${() => fold(!isFolded)}>fold deltas</button></div>
    <${Rows} label="Events" count=${rows.length} height=${24} focus=${at < 0 ? null : at} row=${(number) => html`<${EventRow} row=${rows[number]} log=${log} isAt=${number === at} onCursor=${onCursor} />`} />
    ${event && html`<div class="pad detail"><div class="line"><b>event ${event.sequence_number}</b><span class="muted number">${clock(log.ats[event.sequence_number])}</span><${RawButton} value=${event} name="the event" /></div><${Json} value=${event} depth=${1} /></div>`}
  </div>`;
}

const EventRow = ({ row, log, isAt, onCursor }) => html`<button type="button" class=${`event-row ${isAt ? "at" : ""} ${row.from > row.to ? "" : ""}`} aria-current=${isAt ? "true" : undefined} onClick=${() => onCursor(row.to)}>
  <span class="number">${row.from}</span><span class="number muted">+${duration(log.ats[row.from] - log.ats[0])}</span><span class="type">${row.type.replace("response.", "")}</span>
  <span class="number muted">${row.count > 1 ? `× ${row.count}` : (row.output_index ?? "")}</span></button>`;

const untilOf = ({ log }, cursor) => (cursor >= log.last ? Infinity : log.ats[cursor]);

// What had been saved by the cursor's event, as the server knows it, and what became of it since an earlier round. While a run goes on, what is saved now.
function Files({ run, cursor }) {
  const { log } = run;
  const [since, compare] = useState(null);
  const [open, show] = useState("");
  const isKnown = cursor < log.last || log.head.isFinal;
  const rounds = log.rounds.filter((round) => round.from <= cursor);
  // A round that only said something changed nothing: so the last with a call is what one wants to see.
  const base = rounds.find((round) => round.number === since) ?? rounds.findLast((round) => round.items.some((item) => item.type.endsWith("_call"))) ?? null;
  const from = base ? Math.max(0, base.from - 1) : -1;
  const then = useData((signal) => (isKnown && run.containerId ? asOf(run.id, cursor, signal) : { ok: true, data: null }), [run.id, isKnown ? cursor : -1, run.containerId]);
  const before = useData((signal) => (isKnown && run.containerId && from >= 0 ? asOf(run.id, from, signal) : { ok: true, data: null }), [run.id, isKnown ? from : -1, run.containerId]);
  if (!run.containerId) return html`<p class="muted pad">This run has no container.</p>`;
  const [is, was] = [isKnown ? then.data?.as_of : null, before.data?.as_of];
  const byPath = new Map(run.files.map((file) => [file.path, file]));
  const files = is?.files ? is.files : run.files.filter((file) => (file.created_at ?? 0) * 1000 <= untilOf(run, cursor));
  const changes = is?.files && was?.files ? changed(was.files, is.files) : [];
  const states = new Map(changes.map((change) => [change.path, change]));
  const shown = [...files, ...changes.filter((change) => change.state === "gone").map((change) => change.was)];
  const name = (path) => path.replace("/mnt/data/", "");
  return html`<div class="pad"><p class="line"><span class="muted">Container</span><${Id} id=${run.containerId} href=${address("containers", run.containerId)} />
      ${isKnown && base && html`<label class="line"><span class="muted">changes since</span><select value=${base.number} onChange=${(event) => compare(Number(event.target.value))}>${rounds.map((round) => html`<option key=${round.number} value=${round.number}>round ${round.number + 1}</option>`)}</select></label>`}</p>
    ${shown.length ? html`<table class="small"><thead><tr><th scope="col">File</th><th scope="col">Since</th><th scope="col" class="r">Size</th><th scope="col">From</th><th scope="col"><span class="unseen">Save</span></th></tr></thead>
    <tbody>${shown.map((file) => {
      const change = states.get(file.path);
      const there = byPath.get(file.path);
      return html`<tr key=${file.path}><td>${there && change?.state !== "gone" ? html`<${FileLink} containerId=${run.containerId} fileId=${there.id} name=${name(file.path)} isChip=${false} />` : html`<${Name}>${name(file.path)}</${Name}>`}</td>
        <td>${change && html`<button type="button" class=${`chip ${change.state}`} aria-expanded=${open === file.path} aria-label=${`${change.state}: changes of ${name(file.path)}`} onClick=${() => show(open === file.path ? "" : file.path)}>${change.state}</button>`}</td>
        <td class="r number">${bytes(file.bytes)}</td><td class="muted">${file.source}</td>
        <td class="r">${there && change?.state !== "gone" && html`<${Button} icon="download" tone="quiet" label=${`Save ${file.path}`} onClick=${() => save(`containers/${run.containerId}/files/${there.id}/content`, file.path.split("/").at(-1))} />`}</td></tr>`;
    })}</tbody></table>` : html`<p class="muted">No files were saved by then.</p>`}
    ${states.has(open) && html`<${Diff} key=${open} containerId=${run.containerId} change=${states.get(open)} before=${was.files_at} after=${is.files_at} />`}</div>`;
}

function Network({ run, cursor }) {
  const entries = networkOf(run).filter((entry) => entry.created_at * 1000 <= untilOf(run, cursor));
  if (!entries.length) return html`<p class="muted pad">It reached for nothing outside, or the container has no network. <code>network_policy</code> of the shell allows hosts.</p>`;
  return html`<div class="pad"><${EgressTable} entries=${entries} /></div>`;
}

export const EgressTable = ({ entries }) => html`<div class="scroll" tabindex="0" role="region" aria-label="Network decisions"><table class="small"><thead><tr><th scope="col">Time</th><th scope="col">Verdict</th><th scope="col">Host</th><th scope="col">What</th><th scope="col" class="r">Bytes</th></tr></thead>
  <tbody>${entries.map((entry) => html`<tr key=${entry.id}><td class="number">${clock(entry.created_at * 1000).slice(0, 8)}</td>
    <td><span class=${`status ${entry.decision === "allowed" ? "good" : "bad"}`}>${entry.decision}</span></td>
    <td><code>${entry.host ?? entry.address ?? ""}${entry.port && entry.port !== 443 ? `:${entry.port}` : ""}</code>${entry.message && html`<small class="muted">${entry.message}</small>`}</td>
    <td class="muted">${[entry.method, entry.path, entry.status, ...entry.secrets.map((name) => `secret ${name}`), entry.count > 1 ? `× ${entry.count}` : ""].filter(Boolean).join(" ")}</td>
    <td class="r number">${entry.bytes_received ? bytes(entry.bytes_received + (entry.bytes_sent ?? 0)) : ""}</td></tr>`)}</tbody></table></div>`;

function Cost({ run, cursor }) {
  const until = untilOf(run, cursor);
  const sum = used(run.steps, until);
  const models = run.steps.filter((step) => step.call_id === null && step.ended_at !== null && step.ended_at <= until + 1);
  return html`<div class="pad"><dl class="figures compact"><div><dt>cost</dt><dd>${sum.cost === null ? "no price" : dollars(sum.cost)}</dd></div><div><dt>tokens in</dt><dd>${count(sum.input)}</dd></div>
    <div><dt>cached</dt><dd>${sum.input ? `${Math.round((sum.cached / sum.input) * 100)} %` : "0 %"}</dd></div><div><dt>tokens out</dt><dd>${count(sum.output)}</dd></div></dl>
    <${ByAgent} agents=${byAgent(run.steps, (own) => used(own, until))} />
    <table class="small"><thead><tr><th scope="col">Round</th><th scope="col" class="r">In</th><th scope="col" class="r">Cached</th><th scope="col" class="r">Out</th><th scope="col" class="r">Cost</th></tr></thead>
    <tbody>${models.map((step, at) => html`<tr key=${step.id}><td>${at + 1}${agentOf(step) && html` <span class="muted">${agentOf(step)}</span>`}</td><td class="r number">${count(step.usage?.input_tokens)}</td><td class="r number">${count(step.usage?.input_tokens_details?.cached_tokens)}</td><td class="r number">${count(step.usage?.output_tokens)}</td><td class="r number">${dollars(step.cost_usd)}</td></tr>`)}</tbody></table>
    ${sum.cost === null && html`<p class="muted">The price of this model is not known: <code>price</code> in models.toml says it.</p>`}</div>`;
}

// What each agent of a team has used.
const ByAgent = ({ agents }) => agents.length > 0 && html`<table class="small" aria-label="By agent"><thead><tr><th scope="col">Agent</th><th scope="col" class="r">Steps</th><th scope="col" class="r">Calls</th><th scope="col" class="r">In</th><th scope="col" class="r">Out</th><th scope="col" class="r">Cost</th></tr></thead>
  <tbody>${agents.map((each) => html`<tr key=${each.name}><td><${Name}>${each.name}</${Name}></td><td class="r number">${each.models}</td><td class="r number">${each.tools}</td><td class="r number">${count(each.input)}</td><td class="r number">${count(each.output)}</td><td class="r number">${dollars(each.cost)}</td></tr>`)}</tbody></table>`;

function Raw({ run, cursor }) {
  const response = run.log.at(cursor).response ?? run.response;
  const file = () => saveBlob(new Blob([JSON.stringify({ response: run.response, steps: run.steps, events: run.log.events.map((event, at) => ({ at: run.log.ats[at], event })) }, null, 1)]), `${run.id}.json`);
  const trace = async () => {
    const answer = await get(`responses/${encodeURIComponent(run.id)}/trace`);
    if (answer.ok) saveBlob(new Blob([JSON.stringify(answer.data, null, 1)]), `${run.id}.otlp.json`);
    else notify(answer.message, "bad");
  };
  return html`<div class="pad"><p class="line"><${RawButton} value=${response} name="the response" />${run.log.head.isFinal && html`<${Button} icon="download" tone="quiet" label="Download the trace as OTLP" onClick=${trace}>OTLP</${Button}>`}<${Button} icon="download" tone="quiet" onClick=${file}>Response, steps and log</${Button}></p><${Json} value=${response} depth=${2} /></div>`;
}
