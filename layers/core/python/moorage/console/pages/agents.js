// Saved agents: a model with its instructions and tools, in versions.
import { html } from "../html.js";
import { call, get, post, remove, saveWhole } from "../api.js";
import { address, go, setQuery } from "../router.js";
import { isReadOnly, notify, route } from "../state.js";
import { useData } from "../ui/data.js";
import { AgentForm } from "../ui/agent_form.js";
import { Json } from "../ui/json.js";
import { Acting, Ago, Button, Empty, Head, Id, Name, Problem, Skeleton, Status, Sure } from "../ui/parts.js";
import { choose } from "../ui/drop.js";
import { Listing, Search } from "../ui/list.js";
import { pairsText, toolName } from "../model/agents.js";
import { shownStatus } from "../model/session.js";

const VERSIONS_SHOWN = 12;
const EXAMPLE = `client.beta.agents.create(
    model="demo",
    name="clerk",
    instructions="Answer in one sentence.",
)`;

const COLUMNS = [
  { title: "Name", cell: (row) => html`<a href=${address("agents", row.id)}><${Name}>${row.name || "unnamed"}</${Name}></a>` },
  { title: "Instructions", wide: true, cell: (row) => html`<span title=${row.instructions ?? ""}><${Name}>${row.instructions ?? ""}</${Name}></span>` },
  { title: "Model", cell: (row) => row.model },
  { title: "Tools", cell: (row) => row.tools.length > 0 && html`<${Name}>${row.tools.map(toolName).slice(0, 3).join(", ")}</${Name}>${row.tools.length > 3 ? ` and ${row.tools.length - 3} more` : ""}` },
  { title: "Version", right: true, cell: (row) => row.version },
  { title: "Changed", cell: (row) => html`<${Ago} at=${row.updated_at} />` },
  { title: "Id", desk: true, cell: (row) => html`<${Id} id=${row.id} href=${address("agents", row.id)} />` },
];

export function Agents() {
  const isNew = route.value.query.new && !isReadOnly();
  const create = async (settings) => {
    const answer = await post("agents", Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== null)));
    if (!answer.ok) return notify(answer.message, "bad");
    go("agents", answer.data.id);
    return true;
  };
  const bring = async ([{ file }]) => {
    const form = new FormData();
    form.set("purpose", "user_data");
    form.set("file", file);
    const archive = await call("POST", "files", { form });
    if (!archive.ok) return notify(archive.message, "bad");
    const answer = await post("agents/import", { file_id: archive.data.id });
    await remove(`files/${archive.data.id}`);
    if (!answer.ok) return notify(answer.message, "bad");
    go("agents", answer.data.agent.id);
  };
  return html`<${Head} title="Agents" note="A model with its instructions and tools, saved under an id. A session keeps a copy of it."><${Acting}><${Button} icon="upload" title="An agent with its sessions, out of an archive" onClick=${() => choose(bring)}>Import</${Button}><${Button} icon=${isNew ? "close" : "plus"} tone=${isNew ? "" : "primary"} onClick=${() => setQuery(route.value, { new: isNew ? "" : "yes" })}>${isNew ? "Close" : "New agent"}</${Button}></${Acting}></${Head}>
    ${isNew && html`<${AgentForm} label="Create the agent" send=${create} />`}
    <${Search} label="Filter agents" placeholder="Words of a name or of instructions, or an id" />
    <${Listing} path="agents" label="Agents" page="agents" columns=${COLUMNS} filter=${(row) => `${row.id} ${row.name ?? ""} ${row.instructions ?? ""} ${row.model} ${pairsText(row.metadata)}`}
      empty=${html`<${Empty} title="No agent yet" code=${EXAMPLE}><p>A program makes one, or the button above. Then begin a session with it.</p></${Empty}>`} />`;
}

const SESSIONS = [
  { title: "Status", cell: (row) => html`<${Status} status=${shownStatus(row.status)} />` },
  { title: "Session", cell: (row) => html`<${Id} id=${row.id} href=${address("sessions", row.id)} />` },
  { title: "Version", right: true, cell: (row) => row.agent.version },
  { title: "Metadata", wide: true, cell: (row) => pairsText(row.metadata) && html`<${Name}>${pairsText(row.metadata)}</${Name}>` },
  { title: "Last active", cell: (row) => html`<${Ago} at=${row.last_active_at} />` },
];

export function Agent() {
  const { id, query } = route.value;
  const path = `agents/${encodeURIComponent(id)}`;
  const agent = useData((signal) => get(path, {}, signal), [id]);
  const earlier = useData((signal) => (query.version ? get(path, { version: query.version }, signal) : Promise.resolve({ ok: true, status: 200, data: null })), [id, query.version]);
  if (agent.isLoading) return html`<${Skeleton} />`;
  if (!agent.data) return html`<${Problem} message=${agent.problem} onAgain=${agent.reload} />`;
  const latest = agent.data;
  const isEarlier = query.version && Number(query.version) !== latest.version;
  const shown = isEarlier ? earlier.data : latest;
  const change = async (settings) => {
    const answer = await post(path, settings);
    if (!answer.ok) return notify(answer.message, "bad");
    setQuery(route.value, { edit: "", version: "" });
    agent.reload();
    return true;
  };
  const erase = async () => {
    const answer = await remove(path);
    if (!answer.ok) return notify(answer.message, "bad");
    return go("agents");
  };
  const isEdited = query.edit && !isReadOnly();
  return html`<header class="head"><div><h1><${Name}>${latest.name || "Unnamed agent"}</${Name}></h1><p class="line"><${Id} id=${id} whole=${true} /><span class="muted">changed <${Ago} at=${latest.updated_at} /></span></p></div>
      <div class="actions"><${Button} icon="download" title="With its versions and sessions, as an archive" onClick=${() => saveWhole(`${path}/export`, `${id}.tar`)}>Export</${Button}><${Acting}><${Button} icon="play" tone="primary" onClick=${() => go("sessions", "", { new: "yes", agent: id })}>New session</${Button}><${Button} onClick=${() => go("automations", "", { new: "yes", agent: id })}>Automate</${Button}><${Button} onClick=${() => setQuery(route.value, { edit: isEdited ? "" : "yes", version: "" })}>${isEdited ? "Leave it as it is" : "Edit"}</${Button}><${Sure} onClick=${erase}>Delete</${Sure}></${Acting}></div></header>
    ${isEdited ? html`<${AgentForm} key=${latest.version} agent=${latest} label="Save as the next version" send=${change} />` : shown ? html`<${Settings} agent=${shown} />` : earlier.problem ? html`<${Problem} message=${earlier.problem} />` : html`<${Skeleton} rows=${4} />`}
    ${!isEdited && latest.version > 1 && html`<${Versions} latest=${latest} chosen=${shown?.version} />`}
    <h2 class="pad-top">Sessions</h2><${Listing} path="agents/sessions" query=${{ agent_id: id }} label="Sessions" page="sessions" columns=${SESSIONS} every=${5000} empty=${html`<p class="empty">None was begun with it.</p>`} />`;
}

function Versions({ latest, chosen }) {
  const numbers = Array.from({ length: Math.min(latest.version, VERSIONS_SHOWN) }, (_, at) => latest.version - at);
  return html`<p class="chips pad-top" role="group" aria-label="Versions"><span class="muted">Version</span>${numbers.map((number) => html`<button type="button" key=${number} class="chip" aria-pressed=${number === chosen} onClick=${() => setQuery(route.value, { version: number === latest.version ? "" : number })}>${number}</button>`)}${latest.version > VERSIONS_SHOWN && html`<span class="muted">and ${latest.version - VERSIONS_SHOWN} earlier</span>`}</p>`;
}

function Settings({ agent }) {
  const format = agent.text.format.type === "text" ? "" : "JSON of a schema";
  const facts = [
    ["model", agent.model],
    ["instructions", agent.instructions && html`<span class="said plain">${agent.instructions}</span>`],
    ["effort", agent.reasoning.effort],
    ["answer", [format, agent.text.verbosity === "medium" ? "" : `${agent.text.verbosity} verbosity`].filter(Boolean).join(", ")],
    ["service tier", agent.service_tier === "auto" || agent.service_tier === "default" ? "" : agent.service_tier],
    ["metadata", pairsText(agent.metadata)],
    ["tools", agent.tools.length ? html`<${Name}>${agent.tools.map(toolName).join(", ")}</${Name}>` : "none"],
  ];
  return html`<dl class="facts flush">${facts.filter(([, value]) => value).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    ${agent.tools.length > 0 && html`<${Json} value=${agent.tools} depth=${2} />`}`;
}
