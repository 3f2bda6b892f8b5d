// What stands beside a session's turns: its environment, artifacts, agent, budget and automations.
import { html, useState } from "../html.js";
import { all, post, remove, save } from "../api.js";
import { address, setQuery } from "../router.js";
import { notify, route } from "../state.js";
import { useData } from "../ui/data.js";
import { Json } from "../ui/json.js";
import { Icon } from "../ui/icons.js";
import { Acting, Button, Id, Name, Problem, Skeleton, Status, Sure, Tabs } from "../ui/parts.js";
import { Preview } from "../ui/preview.js";
import { Table } from "../ui/list.js";
import { MEASURES, budgetOf, wordsOfBudget } from "../model/session.js";
import { bytes } from "../model/text.js";

const numberOf = (value) => value.toLocaleString("en", { maximumFractionDigits: 4 });
export const nameOf = (artifact) => artifact.path.replace("/workspace/outputs/", "");
export const contentOf = (live, artifact) => `agents/sessions/${encodeURIComponent(live.id)}/artifacts/${encodeURIComponent(artifact.id)}/content`;
export const openArtifact = (artifact) => setQuery(route.value, { tab: "artifacts", artifact: artifact.id });

export function Details({ live, tab }) {
  const tabs = [
    { id: "environment", title: "Environment" },
    { id: "artifacts", title: "Artifacts", count: live.artifacts.length || null },
    { id: "agent", title: "Agent" },
    { id: "budget", title: "Budget" },
    { id: "automations", title: "Automations" },
    { id: "object", title: "Object" },
  ];
  const View = { artifacts: Artifacts, agent: AgentOf, budget: Budget, automations: Automations, object: ({ live: { session } }) => html`<${Json} value=${session} depth=${2} />` }[tab] ?? Environment;
  return html`<aside class="inspector" aria-label="Details"><${Tabs} label="Details" tabs=${tabs} chosen=${tab} onChoose=${(next) => setQuery(route.value, { tab: next, artifact: "" })} />
    <div class="inside tab-body" role="tabpanel" aria-label=${tab}><${View} live=${live} /></div></aside>`;
}

const Facts = ({ facts }) => html`<dl class="facts flush">${facts.filter(([, value]) => value != null && value !== "" && value !== false).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;

function Environment({ live }) {
  const { environment: place } = live.session;
  if (place.type === "none") return html`<p class="muted">This session has no environment: its agent runs no commands.</p>`;
  const found = live.environment;
  const network = place.network;
  return html`<${Facts} facts=${[
    ["container", html`<${Id} id=${place.id} href=${address("containers", place.id)} />`],
    ["status", found && html`<${Status} status=${found.status} />`],
    ["error", found?.error && html`<span class="bad">${found.error.message}</span>`],
    ["size", place.container_size],
    ["network", network.access === "restricted" ? network.allowed_domains.join(", ") : network.access],
    ["given files", place.files.length > 0 && html`<${Name}>${place.files.map((file) => file.path).join(", ")}</${Name}>`],
    ["skills", place.skills.length > 0 && html`<${Name}>${place.skills.map((skill) => skill.name).join(", ")}</${Name}>`],
    ["vaults", live.session.vault_ids.length > 0 && live.session.vault_ids.map((id) => html`<${Id} key=${id} id=${id} href=${address("vaults", id)} />`)],
  ]} /><p><a class="button" href=${address("containers", place.id)}>Files and terminal</a></p>`;
}

function Artifacts({ live }) {
  const shown = live.artifacts.find((each) => each.id === route.value.query.artifact);
  const drop = async (artifact) => {
    const answer = await remove(`agents/sessions/${encodeURIComponent(live.id)}/artifacts/${encodeURIComponent(artifact.id)}`);
    if (!answer.ok) return notify(answer.message, "bad");
    return live.reload();
  };
  const columns = [
    { title: "File", wide: true, cell: (row) => html`<button type="button" class="entry" aria-pressed=${row.id === shown?.id} onClick=${() => openArtifact(row)}><${Icon} name="files" size=${14} /><span><${Name}>${nameOf(row)}</${Name}></span></button>` },
    { title: "Size", right: true, cell: (row) => bytes(row.size_bytes) },
    { title: "Actions", hidden: true, right: true, cell: (row) => html`<span class="line end-line"><${Button} icon="download" tone="quiet" label=${`Save ${nameOf(row)}`} onClick=${() => save(contentOf(live, row), nameOf(row).split("/").at(-1))} /><${Acting}><${Sure} label=${`Delete ${nameOf(row)}`} onClick=${() => drop(row)} /></${Acting}></span>` },
  ];
  if (!live.artifacts.length) return html`<p class="muted">None yet. What a turn's commands write below <code>/workspace/outputs</code> is kept here when the turn completes.</p>`;
  return html`<${Table} label="Artifacts" columns=${columns} rows=${live.artifacts} />${shown && html`<${Preview} key=${shown.id} path=${contentOf(live, shown)} name=${nameOf(shown)} size=${shown.size_bytes} />`}`;
}

function AgentOf({ live }) {
  const { agent } = live.session;
  return html`<${Facts} facts=${[
    ["agent", agent.version ? html`<${Id} id=${agent.id} href=${address("agents", agent.id, { version: agent.version })} />` : "of this session alone"],
    ["version", agent.version],
    ["model", agent.model],
    ["effort", agent.reasoning.effort],
    ["service tier", agent.service_tier],
    ["instructions", agent.instructions && html`<span class="said plain">${agent.instructions}</span>`],
  ]} />${agent.tools.length > 0 && html`<h3>Tools</h3><${Json} value=${agent.tools} depth=${2} />`}`;
}

// What all of its responses may use together, and have used. A number alone sets a limit; an empty field takes it away.
function Budget({ live }) {
  const { budget, budget_used: used } = live.session;
  const [wanted, want] = useState(() => wordsOfBudget(budget));
  const change = async () => {
    const answer = await post(`agents/sessions/${encodeURIComponent(live.id)}`, { budget: budgetOf(wanted) });
    if (!answer.ok) return notify(answer.message, "bad");
    notify(answer.data.budget ? "The budget counts from the next step on." : "The session has no budget any more.");
    return live.reload();
  };
  const field = (name) => (event) => want({ ...wanted, [name]: event.target.value });
  return html`<div>${budget ? html`<${Facts} facts=${[...MEASURES.filter(({ id }) => budget[id] != null).map(({ id, shown }) => [shown, `${numberOf(used?.[id] ?? 0)} of ${numberOf(budget[id])}`]), ["at the limit", budget.on_limit ?? "stop"]]} />` : html`<p class="muted">This session has no budget.</p>`}
    <${Acting}>${MEASURES.map(({ id, shown, step }) => html`<label key=${id}>${shown}<input type="number" min="0" step=${step} value=${wanted[id]} onInput=${field(id)} /></label>`)}
      <label>At the limit<select value=${wanted.on_limit} onInput=${field("on_limit")}>${["stop", "pause", "finish"].map((each) => html`<option key=${each}>${each}</option>`)}</select></label>
      <p><${Button} tone="primary" onClick=${change}>Set the budget</${Button}></p></${Acting}></div>`;
}

function Automations({ live }) {
  const list = useData((signal) => all("agents/automations", { session_id: live.id }, { most: 100, signal }), [live.id]);
  if (list.isLoading) return html`<${Skeleton} rows=${2} />`;
  if (!list.data) return html`<${Problem} message=${list.problem} onAgain=${list.reload} />`;
  if (!list.data.length) return html`<p class="muted">No automation gives this session input. <a href=${address("automations", "", { new: "yes", session: live.id })}>Make one</a></p>`;
  return html`<ul>${list.data.map((each) => html`<li key=${each.id} class="line"><a href=${address("automations", each.id)}><${Name}>${each.name}</${Name}></a><${Status} status=${each.status} /></li>`)}</ul>`;
}
