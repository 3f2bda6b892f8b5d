// The first screen: what runs and what each waits for, what has ended and how, and whether all is well.
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { get, post } from "../api.js";
import { notify, now, route, typed } from "../state.js";
import { address, go, setQuery } from "../router.js";
import { useData, useKeys } from "../ui/data.js";
import { Acting, Ago, Button, Head, Id, Name, Problem, Skeleton, Status, Waiting } from "../ui/parts.js";
import { answering } from "../model/models.js";
import { Icon } from "../ui/icons.js";
import { lazy } from "../ui/lazy.js";
import { isTight, useMe } from "../ui/storage.js";
import { bytes, count, dollars, duration, plural, tokens } from "../model/text.js";
import { headline } from "../model/outcome.js";
import { STATUSES, calls, isRunning, matches, merged, threads, trouble, understood, withOlder } from "../model/runs.js";

const Welcome = lazy(() => import("./welcome.js"), "Welcome");
const PAGE = 50;
const LOOK_MS = 2000;
const SLOWLY_MS = 15_000;
const ROW_HEIGHT = 44; // as app.css has it
const ROWS_DRAWN = 64;
const ROWS_ABOVE = 20;

export function Runs() {
  const { query } = route.value;
  const { filters, words } = understood(query.q ?? "");
  const list = useRuns({ status: query.status, model: query.model, has_container: query.has === "container" ? "true" : "", order: query.order === "asc" ? "asc" : "", ...filters });
  const live = useData((signal) => get("responses", { status: "queued,in_progress", limit: 100 }, signal), [], { every: 2 * LOOK_MS });
  const isFiltered = Boolean(query.q || query.status || query.model || query.has || query.order);
  const rows = useMemo(() => (isFiltered ? list.rows.filter((row) => matches(row, words)) : withOlder(list.rows, live.data?.data ?? [])), [list.rows, live.data, query.q, isFiltered]);
  const [opened, open] = useState(new Set());
  const entries = useMemo(() => (isFiltered ? rows.map((row) => ({ row })) : threads(rows, opened)), [rows, opened, isFiltered]);
  const toggle = (thread) => open(new Set(opened.has(thread) ? [...opened].filter((each) => each !== thread) : [...opened, thread]));
  const [chosen, choose] = useState(-1);
  useKeys(
    (event) => {
      if (event.key === "j" || event.key === "k") choose((at) => Math.min(entries.length - 1, Math.max(0, at + (event.key === "j" ? 1 : -1))));
      else if (event.key === "Enter" && entries[chosen] && event.target === document.body) go("runs", entries[chosen].row.id);
    },
  );
  if (list.isLoading) return html`<${Head} title="Runs" /><${Skeleton} rows=${10} />`;
  if (list.problem && !rows.length) return html`<${Head} title="Runs" /><${Problem} message=${list.problem} onAgain=${list.reload} />`;
  if (!rows.length && !isFiltered) return list.isEmpty ? html`<${Demo} /><${Welcome} />` : html`<${Head} title="Runs" /><${Skeleton} rows=${10} />`;
  return html`<${Head} title="Runs"><a class="button primary" href="#/playground">New run</a></${Head}>
    <${Demo} /><${Health} running=${live.data?.data ?? []} /><${Filters} />
    ${list.waiting > 0 && html`<button type="button" class="pill" onClick=${list.show}>${plural(list.waiting, "new run")}</button>`}
    ${rows.length ? html`<${Table} entries=${entries} chosen=${chosen} onToggle=${toggle} />` : html`<p class="empty">No run fits these filters.</p>`}
    ${list.hasMore && html`<p class="more"><${Button} onClick=${list.more}>${query.order === "asc" ? "Newer" : "Older"} runs</${Button}></p>`}`;
}

function useRuns(query) {
  const asked = JSON.stringify(query);
  const isOldestFirst = query.order === "asc";
  const [rows, set] = useState([]);
  const [held, hold] = useState(null);
  const [end, setEnd] = useState({ after: null, hasMore: false });
  const head = useData((signal) => get("responses", { ...query, limit: PAGE }, signal), [asked], { every: LOOK_MS });
  useEffect(() => (set([]), hold(null), setEnd({ after: null, hasMore: false })), [asked]);
  useEffect(() => {
    if (!head.data) return;
    const page = head.data.data;
    const known = new Set(rows.map((row) => row.id));
    const fresh = page.filter((row) => !known.has(row.id));
    const isReading = (document.getElementById("main")?.scrollTop ?? 0) > 80;
    if (rows.length && fresh.length && isReading && !isOldestFirst) {
      hold(page);
      set(merged(rows, page).filter((row) => known.has(row.id)));
    } else {
      hold(null);
      set(merged(rows, page, isOldestFirst));
    }
    if (end.after === null) setEnd({ after: null, hasMore: head.data.has_more, first: head.data.last_id });
  }, [head.data]);
  const more = async () => {
    const answer = await get("responses", { ...query, limit: PAGE, after: end.after ?? end.first });
    if (!answer.ok) return notify(answer.message, "bad");
    const known = new Set(rows.map((row) => row.id));
    set([...rows, ...answer.data.data.filter((row) => !known.has(row.id))]);
    setEnd({ after: answer.data.last_id, hasMore: answer.data.has_more });
    return undefined;
  };
  const show = () => {
    document.getElementById("main").scrollTop = 0;
    set(merged(rows, held));
    hold(null);
  };
  const known = new Set(rows.map((row) => row.id));
  const waiting = held ? held.filter((row) => !known.has(row.id)).length : 0;
  return { rows, waiting, show, more, hasMore: end.hasMore, isLoading: head.isLoading, isEmpty: head.data?.data.length === 0, problem: head.problem, reload: head.reload };
}

function Demo() {
  const models = useData((signal) => get("models", {}, signal));
  const answer = answering(models.data?.data ?? []);
  if (!answer.length || answer.some((model) => model.id !== "demo")) return null;
  return html`<aside class="banner"><b>The scripted demo answers.</b> It is offline, free and no model. <code>OPENAI_API_KEY</code>, <code>MOORAGE_UPSTREAM_URL</code> or an entry
    in <code>models.toml</code> brings a real one; <a href="#/doctor">Doctor</a> looks whether it answers.</aside>`;
}

// Today's sums, and what runs.
function Health({ running }) {
  const today = useData((signal) => get("usage", { group_by: "day", from: new Date().toISOString().slice(0, 10) }, signal), [], { every: SLOWLY_MS });
  const sums = today.data?.data[0];
  const failed = sums?.by_status.failed ?? 0;
  const paused = running.filter((row) => row.waiting_for?.kind === "pause").length;
  const asking = running.filter((row) => row.waiting_for?.kind === "approval").length;
  const figures = [
    ["running", running.length - paused - asking, running.length > paused + asking ? "busy" : ""],
    ["waiting for approval", asking, asking ? "warn" : ""],
    ["paused", paused, paused ? "warn" : ""],
    ["failed today", failed, failed ? "bad" : ""],
    ["runs today", sums ? count(sums.responses) : "0", ""],
    ["tokens today", sums ? count(sums.input_tokens + sums.output_tokens) : "0", ""],
    ["spent today", sums ? (sums.unpriced_responses && !sums.cost_usd ? "no price" : dollars(sums.cost_usd)) : "$0", ""],
  ];
  return html`<dl class="figures" aria-label="Today">${figures.map(([name, value, tone]) => html`<div key=${name} class=${tone}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl><${Strip} />`;
}

// What the runs stand on: what models answered last, the sandboxes, and how much room is left.
function Strip() {
  const last = (status) => useData((signal) => get("responses", { status, limit: 1 }, signal), [], { every: SLOWLY_MS }).data?.data[0];
  const [well, ill] = [last("completed"), last("failed")];
  const sandboxes = useData((signal) => get("containers", { limit: 100 }, signal), [], { every: SLOWLY_MS }).data;
  const { storage, network } = useMe().data ?? {};
  const alive = sandboxes?.data.filter((each) => each.status === "running").length;
  return html`<ul class="line strip" aria-label="Health">
    ${well && html`<li class="status good"><${Icon} name="ok" size=${13} /><span><a href=${address("runs", well.id)}>${well.model} ended well</a> <${Ago} at=${well.ended_at} /></span></li>`}
    ${ill && html`<li class=${`status ${!well || ill.ended_at > well.ended_at ? "bad" : ""}`}><${Icon} name="fail" size=${13} /><span class="cut"><a href=${address("runs", ill.id)}>${ill.model} failed</a> <${Ago} at=${ill.ended_at} />: ${trouble(ill)}</span></li>`}
    ${sandboxes && html`<li class="status"><${Icon} name="containers" size=${13} /><a href="#/containers">${plural(alive, "sandbox", "sandboxes")}${sandboxes.has_more ? " or more" : ""} alive</a></li>`}
    ${storage && html`<li class=${`status ${isTight(storage) ? "warn" : ""}`}><${Icon} name="files" size=${13} /><a href="#/usage">${bytes(storage.used_bytes)} of ${bytes(storage.limit_bytes)} stored</a></li>`}
    ${network && html`<li class="status" title=${network.allowed_domains.join(", ")}><${Icon} name="webhooks" size=${13} /><span class="cut">${network.allowed_domains.length ? html`network: at most <${Name}>${ceiling(network.allowed_domains)}</${Name}>` : html`no network for containers`}</span></li>`}</ul>`;
}

const HOSTS_SHOWN = 3;
const ceiling = (hosts) => (hosts.includes("*") ? "every host" : `${hosts.slice(0, HOSTS_SHOWN).join(", ")}${hosts.length > HOSTS_SHOWN ? ` and ${hosts.length - HOSTS_SHOWN} more` : ""}`);

function Filters() {
  const { query } = route.value;
  const chosen = new Set((query.status ?? "").split(",").filter(Boolean));
  const toggle = (status) => {
    const next = new Set(chosen);
    if (!next.delete(status)) next.add(status);
    setQuery(route.value, { status: [...next].join(",") });
  };
  return html`<div class="filters" role="search">
    <input type="search" data-filter aria-label="Filter runs" placeholder="Words, an id, model:…, container:…, metadata:team=docs" value=${query.q ?? ""}
      onInput=${(event) => setQuery(route.value, { q: event.target.value })} onKeyDown=${(event) => event.key === "Escape" && event.target.blur()} />
    <div class="chips" role="group" aria-label="Status">${STATUSES.map(
      (status) => html`<button type="button" key=${status} class="chip" aria-pressed=${chosen.has(status)} onClick=${() => toggle(status)}>${status.replace("_", " ")}</button>`,
    )}</div>
    <div class="chips" role="group" aria-label="More filters">
    <button type="button" class="chip" aria-pressed=${query.has === "container"} onClick=${() => setQuery(route.value, { has: query.has === "container" ? "" : "container" })}>has a container</button>
    <button type="button" class="chip" aria-pressed=${query.order === "asc"} onClick=${() => setQuery(route.value, { order: query.order === "asc" ? "" : "asc" })}>oldest first</button>
    ${query.model && html`<button type="button" class="chip" aria-label=${`Remove the filter model ${query.model}`} onClick=${() => setQuery(route.value, { model: "" })}>model ${query.model} ×</button>`}</div>
  </div>`;
}

// Only rows near sight are drawn: the others are two empty rows of their height.
function Table({ entries, chosen, onToggle }) {
  const [from, start] = useState(0);
  const body = useRef(null);
  useEffect(() => {
    const main = document.getElementById("main");
    const look = () => start(Math.max(0, Math.floor((main.scrollTop - (body.current?.offsetTop ?? 0)) / ROW_HEIGHT) - ROWS_ABOVE));
    main.addEventListener("scroll", look, { passive: true });
    return () => main.removeEventListener("scroll", look);
  }, []);
  const first = Math.min(from, Math.max(0, entries.length - ROWS_DRAWN));
  const shown = entries.slice(first, first + ROWS_DRAWN);
  const space = (number) => number > 0 && html`<tr aria-hidden="true" style=${{ height: `${number * ROW_HEIGHT}px` }}><td colspan="9"></td></tr>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Runs"><table class="rows" aria-rowcount=${entries.length}>
    <thead><tr><th scope="col">Status</th><th scope="col">Request</th><th scope="col">Model</th><th scope="col" class="r">Tool calls</th><th scope="col" class="r">Took</th>
      <th scope="col" class="r">Tokens</th><th scope="col" class="r">Cost</th><th scope="col">Created</th><th scope="col"><span class="unseen">Actions</span></th></tr></thead>
    <tbody ref=${body}>${space(first)}${shown.map((entry, at) => html`<${Row} key=${entry.row.id} entry=${entry} isChosen=${first + at === chosen} onToggle=${onToggle} />`)}${space(entries.length - first - shown.length)}</tbody></table></div>`;
}

function Row({ entry, isChosen, onToggle }) {
  const { row, thread, earlier, isOpen, isTurn } = entry;
  const line = useRef(null);
  useEffect(() => {
    if (isChosen) line.current.scrollIntoView({ block: "nearest" });
  }, [isChosen]);
  const isLive = isRunning(row);
  const shown = { pause: "paused", approval: "waits" }[row.waiting_for?.kind] ?? row.status;
  const took = row.ended_at === null ? now.value - row.created_at * 1000 : (row.ended_at - row.created_at) * 1000; // the API counts in seconds
  const usage = row.usage;
  const cached = usage?.input_tokens_details?.cached_tokens;
  return html`<tr ref=${line} class=${`${isChosen ? "chosen" : ""} ${isLive ? "live" : ""} ${isTurn ? "turn" : ""}`} onClick=${(event) => event.target.closest("a,button") || go("runs", row.id)}>
    <td><${Status} status=${shown} /></td>
    <td class="wide"><div class="thread"><div><a href=${address("runs", row.id)} class="asked">${row.input_preview ? html`<${Name}>${headline(row.input_preview) || row.input_preview}</${Name}>` : html`<span class="muted">No text</span>`}</a><${Outcome} row=${row} /></div>
      ${row.session_id && !isTurn && html`<a class="chip" href=${address("sessions", row.session_id)} aria-label=${`The session of ${row.id}`}>session</a>`}
      ${earlier > 0 && html`<button type="button" class="chip" aria-expanded=${isOpen} onClick=${() => onToggle(thread)}>${plural(earlier + 1, "turn")}</button>`}</div></td>
    <td><a class="quietly" href=${address("runs", "", { ...route.value.query, model: row.model })} title="Only runs of this model">${row.model}</a></td>
    <td class="r number" title=${Object.entries(row.tool_calls ?? {}).map(([name, times]) => `${times} × ${name}`).join(", ")}>${calls(row) || ""}</td>
    <td class="r number">${took < 1000 ? "< 1 s" : took < 60_000 ? `${Math.floor(took / 1000)} s` : duration(took)}</td>
    <td class="r number" title=${usage ? `${usage.input_tokens} in (${cached ?? 0} cached), ${usage.output_tokens} out` : ""}>${usage ? tokens(usage.input_tokens, usage.output_tokens) : ""}</td>
    <td class="r number">${dollars(row.cost_usd)}</td>
    <td><${Ago} at=${row.created_at} /></td>
    <td class="r">${isLive ? html`<${Acting}><${Button} icon="stop" tone="quiet" label=${`Stop ${row.id}`} onClick=${() => stop(row.id)} /></${Acting}>` : html`<${Id} id=${row.id} />`}</td>
  </tr>`;
}

// What it waits for, why it failed, or what it answered.
function Outcome({ row }) {
  const wait = row.waiting_for;
  if (wait) return html`<small class="waits"><${Waiting} wait=${wait} /></small>`;
  const said = typed(trouble(row));
  if (said) return html`<small class="bad">${said}</small>`;
  return row.output_preview ? html`<small class="muted"><${Name}>${row.output_preview}</${Name}></small>` : null;
}

async function stop(id) {
  const answer = await post(`responses/${id}/cancel`);
  notify(answer.ok ? "It stops." : answer.message, answer.ok ? "note" : "bad");
}
