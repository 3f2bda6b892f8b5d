// Sessions of agents: how each stands, what was asked last and what was answered; and a form that begins one.
import { html, useState } from "../html.js";
import { all, get, post } from "../api.js";
import { address, go, setQuery } from "../router.js";
import { isReadOnly, notify, route } from "../state.js";
import { useData } from "../ui/data.js";
import { Acting, Ago, Button, Empty, Head, Id, Name, Status } from "../ui/parts.js";
import { Listing, Search } from "../ui/list.js";
import { ENVIRONMENTS, environmentOf } from "../model/agents.js";
import { headline } from "../model/outcome.js";
import { answering } from "../model/models.js";
import { shownStatus } from "../model/session.js";
import { tokens } from "../model/text.js";

const LOOK_MS = 5000;
const RUNS_COUNTED = 100;
const EXAMPLE = `client.beta.agents.sessions.create(
    agent={"model": "demo", "instructions": "Be brief."},
    environment={"type": "openai_hosted"},
    input="What is the time?",
)`;

const nameOf = (row) => row.agent.name || (row.agent.version ? "unnamed" : "an agent of its own");

const columns = (latest) => [
  { title: "Last message", wide: true, cell: (row) => html`<div><a href=${address("sessions", row.id)}><${Name}>${headline(latest.get(row.id)?.input_preview ?? "") || nameOf(row)}</${Name}></a>${outcome(row, latest.get(row.id))}</div>` },
  { title: "Status", cell: (row) => html`<${Status} status=${shownStatus(row.status)} />` },
  { title: "Agent", cell: (row) => html`<${Name}>${nameOf(row)}</${Name}>` },
  { title: "Model", desk: true, cell: (row) => row.agent.model },
  { title: "Tokens", desk: true, right: true, cell: (row) => row.usage && tokens(row.usage.input_tokens, row.usage.output_tokens) },
  { title: "Last active", cell: (row) => html`<${Ago} at=${row.last_active_at} />` },
  { title: "Id", desk: true, cell: (row) => html`<${Id} id=${row.id} href=${address("sessions", row.id)} />` },
];

function outcome(row, run) {
  const wanted = new Set(row.required_actions.map((each) => (each.type === "function_call" ? `a result of ${each.name}` : "approval")));
  if (wanted.size) return html`<small class="waits"><b>Waiting for <${Name}>${[...wanted].join(", ")}</${Name}></b></small>`;
  if (row.error) return html`<small class="bad">${row.error}</small>`;
  if (run?.error) return html`<small class="bad">${run.error.message}</small>`;
  return run?.output_preview ? html`<small class="muted"><${Name}>${run.output_preview}</${Name}></small>` : null;
}

export function Sessions() {
  const { query } = route.value;
  const runs = useData((signal) => get("responses", { limit: RUNS_COUNTED }, signal), [], { every: LOOK_MS });
  const latest = new Map((runs.data?.data ?? []).toReversed().filter((run) => run.session_id).map((run) => [run.session_id, run]));
  const isNew = query.new && !isReadOnly();
  return html`<${Head} title="Sessions" note="Conversations with agents, each with its environment and its turns."><${Acting}><${Button} icon=${isNew ? "close" : "plus"} tone=${isNew ? "" : "primary"} onClick=${() => setQuery(route.value, { new: isNew ? "" : "yes", agent: "" })}>${isNew ? "Close" : "New session"}</${Button}></${Acting}></${Head}>
    ${isNew && html`<${NewSession} agentId=${query.agent ?? ""} />`}
    <${Search} label="Filter sessions" placeholder="Words of a message, an agent, or an id" />
    <${Listing} path="agents/sessions" query=${{ agent_id: query.of }} label="Sessions" page="sessions" columns=${columns(latest)} every=${LOOK_MS}
      filter=${(row) => `${row.id} ${nameOf(row)} ${row.agent.model} ${row.status} ${latest.get(row.id)?.input_preview ?? ""} ${Object.values(row.metadata).join(" ")}`}
      empty=${html`<${Empty} title="No session yet" code=${EXAMPLE}><p>A session keeps a copy of its agent, and goes on for as long as it is kept. A program makes one, or the button above.</p></${Empty}>`} />`;
}

function NewSession({ agentId }) {
  const agents = useData((signal) => all("agents", {}, { most: 300, signal }), []);
  const templates = useData((signal) => all("agents/environments/templates", {}, { most: 100, signal }), []);
  const vaults = useData((signal) => all("vaults", {}, { most: 100, signal }), []);
  const models = useData((signal) => get("models", {}, signal), []);
  const [settings, set] = useState({ agent: agentId, model: "", place: "openai_hosted", vaults: [], text: "" });
  const change = (name) => (event) => set((before) => ({ ...before, [name]: event.target.value }));
  const offered = answering(models.data?.data ?? []);
  const model = settings.model || offered[0]?.id || "";
  const chosen = settings.agent ? agents.data?.find((each) => each.id === settings.agent) : null;
  const toggle = (id) => set((before) => ({ ...before, vaults: before.vaults.includes(id) ? before.vaults.filter((each) => each !== id) : [...before.vaults, id] }));
  const isReady = (settings.agent || model) && (settings.place !== "none" || settings.text.trim());
  const begin = async () => {
    const answer = await post("agents/sessions", {
      ...(settings.agent ? { agent_id: settings.agent } : { agent: { model } }),
      environment: environmentOf(settings.place),
      ...(settings.vaults.length ? { vault_ids: settings.vaults } : {}),
      ...(settings.text.trim() ? { input: settings.text } : {}),
    });
    if (!answer.ok) return notify(answer.message, "bad");
    return go("sessions", answer.data.id);
  };
  return html`<section class="form" aria-label="New session"><div class="settings">
    <label><span>Agent</span><select value=${settings.agent} onChange=${change("agent")}><option value="">a model alone</option>${(agents.data ?? []).map((each) => html`<option key=${each.id} value=${each.id}>${each.name || each.id}</option>`)}</select></label>
    ${settings.agent ? html`<p class="muted"><span>Model</span><br />${chosen?.model ?? ""}</p>` : html`<label><span>Model</span><select value=${model} onChange=${change("model")}>${offered.map((each) => html`<option key=${each.id} value=${each.id}>${each.id}</option>`)}</select></label>`}
    <label class="whole"><span>Environment</span><select value=${settings.place} onChange=${change("place")}>${ENVIRONMENTS.map(([value, title]) => html`<option key=${value} value=${value}>${title}</option>`)}${(templates.data ?? []).map((each) => html`<option key=${each.id} value=${each.id}>template ${each.name || each.id}</option>`)}</select></label>
    ${vaults.data?.length > 0 && html`<fieldset><legend>Vaults</legend><div class="chips">${vaults.data.map((each) => html`<button type="button" key=${each.id} class="chip" aria-pressed=${settings.vaults.includes(each.id)} onClick=${() => toggle(each.id)}><${Name}>${each.name || each.id}</${Name}></button>`)}</div></fieldset>`}
    <label class="whole"><span>First message</span><textarea rows="3" placeholder="Say what to do" value=${settings.text} onInput=${change("text")}></textarea></label></div>
    <p class="line"><${Button} tone="primary" icon="play" isOff=${!isReady} onClick=${begin}>Begin</${Button}></p></section>`;
}
