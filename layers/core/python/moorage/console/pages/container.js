// One container: its files, what its runs did in it, what it reached for, and what bounds it.
import { html, useMemo, useState } from "../html.js";
import { all, call, get, remove, saveWhole } from "../api.js";
import { address, go, setQuery } from "../router.js";
import { command, notify, route } from "../state.js";
import { useData } from "../ui/data.js";
import { Acting, Ago, Button, Code, Id, Name, Problem, Skeleton, Status, Sure, Tabs } from "../ui/parts.js";
import { EgressTable } from "../ui/inspector.js";
import { Icon } from "../ui/icons.js";
import { lazy } from "../ui/lazy.js";
import { Preview } from "../ui/preview.js";
import { Table } from "../ui/list.js";
import { isolated } from "../model/ansi.js";
import { bytes, dollars, plural } from "../model/text.js";
import { Left, network, runsOf } from "./containers.js";
import { headline } from "../model/outcome.js";
import { calls } from "../model/runs.js";

const Versions = lazy(() => import("./container_past.js"), "Versions");
const SandboxesOf = lazy(() => import("./container_past.js"), "Sandboxes");
const Commands = lazy(() => import("./container_commands.js"), "Commands");
const Processes = lazy(() => import("./container_processes.js"), "Processes");
const Screen = lazy(() => import("./container_screen.js"), "Screen");
const Terminals = lazy(() => import("./terminals.js"), "Terminals");
const TABS = [
  { id: "files", title: "Files" },
  { id: "terminal", title: "Terminal" },
  { id: "screen", title: "Screen" },
  { id: "processes", title: "Processes" },
  { id: "commands", title: "Commands" },
  { id: "runs", title: "Runs" },
  { id: "versions", title: "Versions" },
  { id: "sandboxes", title: "Sandboxes" },
  { id: "network", title: "Network" },
  { id: "facts", title: "Facts" },
];

export function Container() {
  const { id, query } = route.value;
  // The list of files, because looking at a container itself counts as use and would keep it alive.
  const found = useData((signal) => listed(id, signal), [id], { every: 5000 });
  const latest = useData((signal) => get("responses", { container: id, limit: 1 }, signal), [id]);
  if (found.isLoading) return html`<${Skeleton} />`;
  if (found.problem && !found.data) return html`<${Problem} message=${found.problem} onAgain=${found.reload} />`;
  const container = found.data;
  const name = (container.name === "auto" && headline(latest.data?.data[0]?.input_preview ?? "")) || container.name;
  const tab = query.tab ?? "files";
  const erase = async () => {
    const answer = await remove(`containers/${id}`);
    if (!answer.ok) return notify(answer.message, "bad");
    go("containers");
    return notify("The container and its files are gone.");
  };
  // Whoever asks for a container itself uses it.
  const extend = async () => {
    const answer = await get(`containers/${id}`);
    notify(answer.ok ? "It stays for its whole time again." : answer.message, answer.ok ? "note" : "bad");
    found.reload();
  };
  const View = { terminal: Terminals, screen: Screen, processes: Processes, commands: Commands, runs: Used, versions: Versions, sandboxes: SandboxesOf, network: Network, facts: Facts }[tab] ?? Files;
  return html`<header class="head"><div><h1><${Name}>${name || "Container"}</${Name}></h1><p class="line"><${Id} id=${id} whole=${true} /><${Status} status=${container.status} /><span class="muted">expires in</span><${Left} until=${container.expires_at} /></p></div>
      <div class="actions"><${Button} icon="download" onClick=${() => saveWhole(`archives/${id}`, `${id}.zip`)}>All as zip</${Button}><${Acting}>${container.status === "running" && html`<${Button} icon="clock" title="Count this as use, so that it stays for its whole time again" onClick=${extend}>Extend</${Button}>`}<${Button} icon="upload" onClick=${() => choose(id, found.reload)}>Add a file</${Button}><${Sure} onClick=${erase}>Delete</${Sure}></${Acting}></div></header>
    <${Tabs} label="Of this container" tabs=${TABS} chosen=${tab} onChoose=${(next) => setQuery(route.value, { tab: next, file: "", session: "", then: "" })} />
    <div class="tab-body" role="tabpanel" aria-label=${tab}><${View} container=${container} reload=${found.reload} /></div>`;
}

async function listed(id, signal) {
  const pages = await all("containers", {}, { most: 500, signal });
  const row = pages.ok && pages.data.find((each) => each.id === id);
  return row ? { ok: true, status: 200, data: row } : get(`containers/${encodeURIComponent(id)}`, {}, signal);
}

function choose(id, reload) {
  const input = Object.assign(document.createElement("input"), { type: "file" });
  input.onchange = async () => {
    const form = new FormData();
    form.set("file", input.files[0]);
    const answer = await call("POST", `containers/${id}/files`, { form });
    notify(answer.ok ? `${isolated(input.files[0].name)} is in the container.` : answer.message, answer.ok ? "note" : "bad");
    reload();
  };
  input.click();
}

function Files({ container }) {
  const { query } = route.value;
  const tree = useData((signal) => get(`containers/${container.id}/tree`, { at: query.then }, signal), [container.id, query.then], { every: query.then ? 0 : 5000 });
  const [closed, close] = useState(new Set());
  const entries = tree.data?.data ?? [];
  const shown = useMemo(() => entries.filter((entry) => ![...closed].some((folder) => entry.path.startsWith(`${folder}/`))), [tree.data, closed]);
  if (tree.isLoading) return html`<${Skeleton} />`;
  if (tree.problem && !tree.data) return html`<${Problem} message=${tree.problem} onAgain=${tree.reload} />`;
  if (!entries.length && !query.then) return html`<div class="empty"><p>No saved files. What commands write under <code>/mnt/data</code> is saved when they have ended; or put one there:</p><${Code} text=${command(`containers cp report.csv ${container.id}:`)} /></div>`;
  const file = entries.find((entry) => entry.type === "file" && entry.id === query.file);
  const toggle = (path) => close((before) => new Set(before.has(path) ? [...before].filter((each) => each !== path) : [...before, path]));
  return html`${query.then && html`<p class="line pad" role="status">As they were <${Ago} at=${Number(query.then) / 1000} /><${Button} onClick=${() => setQuery(route.value, { then: "", file: "" })}>Now</${Button}></p>`}
    <div class=${`browse ${file ? "with-file" : ""}`}><ul class="tree" aria-label="Files">${shown.slice(0, 500).map((entry) => html`<${Entry} key=${entry.path} entry=${entry} container=${container} isOpen=${!closed.has(entry.path)} isChosen=${entry.id === query.file} onToggle=${toggle} reload=${tree.reload} />`)}
      ${shown.length > 500 && html`<li class="muted">${shown.length - 500} more: close a folder, or look at them with ${command("containers tree")}.</li>`}</ul>
    ${file && html`<${Preview} key=${file.id} path=${`containers/${container.id}/files/${file.id}/content${query.then ? `?at=${query.then}` : ""}`} name=${file.path.split("/").at(-1)} size=${file.bytes} />`}</div>`;
}

function Entry({ entry, container, isOpen, isChosen, onToggle, reload }) {
  const depth = entry.path.split("/").length - 4;
  const name = entry.path.split("/").at(-1);
  const erase = async () => {
    const answer = await remove(`containers/${container.id}/files/${entry.id}`);
    notify(answer.ok ? `${isolated(name)} is deleted.` : answer.message, answer.ok ? "note" : "bad");
    reload();
  };
  const indent = { paddingLeft: `${8 + depth * 18}px` };
  if (entry.type === "folder") return html`<li><button type="button" class="entry" style=${indent} aria-expanded=${isOpen} onClick=${() => onToggle(entry.path)}><${Icon} name="folder" size=${14} /><span><${Name}>${name}</${Name}></span><span class="muted number">${plural(entry.files, "file")}, ${bytes(entry.bytes)}</span></button></li>`;
  return html`<li class="line-of-file"><button type="button" class="entry" style=${indent} aria-pressed=${isChosen} onClick=${() => setQuery(route.value, { file: isChosen ? "" : entry.id })}><${Icon} name="files" size=${14} /><span><${Name}>${name}</${Name}></span><span class="muted number">${entry.source} · ${bytes(entry.bytes)}</span></button>
    ${!route.value.query.then && html`<${Acting}><${Sure} onClick=${erase} label=${`Delete ${name}`} /></${Acting}>`}</li>`;
}

const RUN_COLUMNS = [
  { title: "Status", cell: (row) => html`<${Status} status=${row.status} />` },
  { title: "Asked", wide: true, cell: (row) => html`<a href=${address("runs", row.id)}><${Name}>${headline(row.input_preview) || row.input_preview || row.id}</${Name}></a>` },
  { title: "Calls", right: true, cell: (row) => calls(row) || "" },
  { title: "Cost", right: true, cell: (row) => dollars(row.cost_usd) },
  { title: "Created", cell: (row) => html`<${Ago} at=${row.created_at} />` },
];

function Used({ container }) {
  const runs = useData((signal) => get("responses", { container: container.id, limit: 50 }, signal), [container.id], { every: 5000 });
  if (runs.isLoading) return html`<${Skeleton} />`;
  if (runs.problem && !runs.data) return html`<${Problem} message=${runs.problem} />`;
  if (!runs.data.data.length) return html`<p class="empty">No run has used it.</p>`;
  return html`<${Table} label="Runs of this container" columns=${RUN_COLUMNS} rows=${runs.data.data} onOpen=${(row) => go("runs", row.id)} />
    <p class="pad"><a href=${runsOf(container.id)}>${runs.data.has_more ? "All of them" : "Watch them"} in Runs</a></p>`;
}

function Network({ container }) {
  const [isRefused, only] = useState(false);
  const log = useData((signal) => all(`containers/${container.id}/egress`, {}, { most: 300, signal }), [container.id], { every: 3000 });
  if (log.isLoading) return html`<${Skeleton} />`;
  if (log.problem && !log.data) return html`<${Problem} message=${log.problem} />`;
  const entries = log.data.filter((entry) => !isRefused || entry.decision !== "allowed");
  const refused = [...new Set(log.data.filter((entry) => entry.decision !== "allowed" && entry.host).map((entry) => entry.host))];
  const hosts = [...new Set([...(container.network_policy?.allowed_domains ?? []), ...refused])];
  return html`<p class="line pad"><button type="button" class="chip" aria-pressed=${isRefused} onClick=${() => only(!isRefused)}>refused only</button><span class="muted">The policy is set when a container is made.</span></p>
    ${entries.length ? html`<${EgressTable} entries=${entries} />` : html`<p class="empty">It has reached for nothing.</p>`}
    ${refused.length > 0 && html`<h2 class="pad">A policy that would let them pass</h2><${Code} text=${JSON.stringify({ network_policy: { type: "allowlist", allowed_domains: hosts } }, null, 2)} />`}`;
}

function Given({ skill }) {
  const name = html`<${Name}>${skill.name}</${Name}>${skill.version && ` ${skill.version}`}`;
  return skill.skill_id ? html`<a class="chip" href=${address("skills", skill.skill_id)} title=${skill.path}>${name}</a>` : html`<span class="chip" title=${skill.path}>${name}</span>`;
}

function Facts({ container }) {
  const skills = useData((signal) => all(`containers/${container.id}/skills`, {}, { signal }), [container.id]).data ?? [];
  const facts = [
    ["id", html`<${Id} id=${container.id} whole=${true} />`],
    ["created", html`<${Ago} at=${container.created_at} />`],
    ["last active", html`<${Ago} at=${container.last_active_at} />`],
    ["stays for", `${container.expires_after?.minutes ?? ""} minutes after its last use`],
    ["memory", container.memory_limit],
    ["network", network(container.network_policy)],
    ["allowed hosts", (container.network_policy?.allowed_domains ?? []).join(", ")],
    ["skills", skills.length > 0 && html`<span class="chips">${skills.map((skill) => html`<${Given} key=${skill.id} skill=${skill} />`)}</span>`],
  ];
  return html`<dl class="facts">${facts.filter(([, value]) => value).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    <h2>A command in it</h2><${Code} text=${command(`containers exec ${container.id} 'ls -la /mnt/data'`)} />`;
}
