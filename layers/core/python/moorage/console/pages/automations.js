// Automations: input for sessions at set times, and what became of each invocation.
import { html, useState } from "../html.js";
import { all, get, post, remove } from "../api.js";
import { address, go, setQuery } from "../router.js";
import { isReadOnly, notify, route } from "../state.js";
import { useData } from "../ui/data.js";
import { Acting, Ago, Button, Empty, Head, Id, Name, Problem, Skeleton, Status, Sure } from "../ui/parts.js";
import { Listing, Search } from "../ui/list.js";
import { ENVIRONMENTS, environmentOf, isShownWhole, localTime, message, secondsOf, wordsOf } from "../model/agents.js";
import { headline } from "../model/outcome.js";
import { moment } from "../model/text.js";

const LOOK_MS = 5000;
const EXAMPLE = `client.beta.agents.automations.create(
    type="periodic",
    name="weekly report",
    expression="0 9 * * MON",
    timezone="Europe/Berlin",
    target={
        "type": "new_session",
        "agent": {"model": "demo"},
        "environment": {"type": "openai_hosted"},
        "input": [{"role": "user", "content": "Write the report."}],
    },
)`;
const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

const When = ({ row }) => (row.type === "once" ? html`once, ${moment(row.run_at * 1000)}` : html`<code>${row.expression}</code> <span class="muted">${row.timezone}</span>`);
const saidBy = ({ target }) => (target.type === "existing_session" ? target.instructions : wordsOf(target.input));
const Reason = ({ row }) => (row.pause_reason ? html` <span class="bad">${row.pause_reason.replaceAll("_", " ")}</span>` : null);

const COLUMNS = [
  { title: "Name", cell: (row) => html`<a href=${address("automations", row.id)}><${Name}>${row.name}</${Name}></a>` },
  { title: "Says", wide: true, cell: (row) => html`<${Name}>${headline(saidBy(row))}</${Name}>` },
  { title: "When", cell: (row) => html`<${When} row=${row} />` },
  { title: "To", cell: (row) => (row.target.type === "existing_session" ? html`<${Id} id=${row.target.session_id} href=${address("sessions", row.target.session_id)} />` : "a new session each time") },
  { title: "Status", cell: (row) => html`<${Status} status=${row.status} /><${Reason} row=${row} />` },
  { title: "Id", desk: true, cell: (row) => html`<${Id} id=${row.id} href=${address("automations", row.id)} />` },
];

export function Automations() {
  const { query } = route.value;
  const isNew = query.new && !isReadOnly();
  const create = async (body) => {
    const answer = await post("agents/automations", body);
    if (!answer.ok) return notify(answer.message, "bad");
    return go("automations", answer.data.id);
  };
  return html`<${Head} title="Automations" note="Messages to sessions at set times, by cron in a time zone or once."><${Acting}><${Button} icon=${isNew ? "close" : "plus"} tone=${isNew ? "" : "primary"} onClick=${() => setQuery(route.value, { new: isNew ? "" : "yes", agent: "", session: "" })}>${isNew ? "Close" : "New automation"}</${Button}></${Acting}></${Head}>
    ${isNew && html`<${Form} label="Create the automation" send=${create} agentId=${query.agent} sessionId=${query.session} />`}
    <${Search} label="Filter automations" placeholder="Words of a name or of a message, or an id" />
    <${Listing} path="agents/automations" label="Automations" page="automations" columns=${COLUMNS} every=${LOOK_MS} filter=${(row) => `${row.id} ${row.name} ${saidBy(row)} ${row.status}`}
      empty=${html`<${Empty} title="No automation yet" code=${EXAMPLE}><p>A weekly report, a reminder: a program makes one, or the button above.</p></${Empty}>`} />`;
}

// Of a new automation, or of a change of one: its types stay then, and what is not shown whole is not sent back.
function Form({ automation, label, send, agentId = "", sessionId = "" }) {
  const agents = useData((signal) => all("agents", {}, { most: 300, signal }), []);
  const templates = useData((signal) => all("agents/environments/templates", {}, { most: 100, signal }), []);
  const target = automation?.target;
  const [settings, set] = useState({
    name: automation?.name ?? "",
    type: automation?.type ?? "periodic",
    expression: automation?.expression ?? "0 9 * * MON",
    timezone: automation?.timezone ?? ZONE,
    at: automation?.run_at ? localTime(automation.run_at) : "",
    to: target?.type ?? (sessionId ? "existing_session" : "new_session"),
    agent: target?.agent_id ?? agentId,
    session: target?.session_id ?? sessionId,
    place: "openai_hosted",
    text: automation ? saidBy(automation) : "",
  });
  const change = (name) => (event) => set((before) => ({ ...before, [name]: event.target.value }));
  const { name, type, to, text } = settings;
  const isNewSession = to === "new_session";
  const agent = settings.agent || agents.data?.[0]?.id || "";
  const isFixed = target && isNewSession && !isShownWhole(target);
  const schedule = type === "once" ? { run_at: secondsOf(settings.at) } : { expression: settings.expression, timezone: settings.timezone };
  const wanted = !isNewSession ? { type: to, session_id: settings.session, instructions: text } : target ? { type: to, environment: target.environment, input: [message(text)], agent_id: target.agent_id, metadata: target.metadata, vault_ids: target.vault_ids } : { type: to, agent_id: agent, environment: environmentOf(settings.place), input: [message(text)] };
  const isReady = name && (type === "once" ? settings.at : settings.expression && settings.timezone) && (isFixed || (text && (isNewSession ? agent : settings.session)));
  const press = () => send({ name, ...(automation ? {} : { type }), ...(automation?.status === "completed" ? {} : schedule), ...(isFixed ? {} : { target: wanted }) });
  return html`<section class="form" aria-label=${label}><div class="settings">
    <label><span>Name</span><input type="text" placeholder="weekly report" value=${name} onInput=${change("name")} /></label>
    <label><span>How often</span><select value=${type} disabled=${Boolean(automation)} onChange=${change("type")}><option value="periodic">again and again</option><option value="once">once</option></select></label>
    ${type === "once" ? html`<label><span>At</span><input type="datetime-local" value=${settings.at} onInput=${change("at")} /></label>` : html`<label><span>Minute, hour, day, month, weekday</span><input type="text" class="mono" value=${settings.expression} onInput=${change("expression")} /></label><label><span>Time zone</span><input type="text" value=${settings.timezone} onInput=${change("timezone")} /></label>`}
    <label class="whole"><span>To</span><select value=${to} disabled=${Boolean(automation)} onChange=${change("to")}><option value="new_session">a new session each time</option><option value="existing_session">a session that is there</option></select></label>
    ${isNewSession ? !automation && html`<label><span>Agent</span><select value=${agent} onChange=${change("agent")}>${(agents.data ?? []).map((each) => html`<option key=${each.id} value=${each.id}>${each.name || each.id}</option>`)}</select></label>
      <label><span>Environment</span><select value=${settings.place} onChange=${change("place")}>${ENVIRONMENTS.map(([value, title]) => html`<option key=${value} value=${value}>${title}</option>`)}${(templates.data ?? []).map((each) => html`<option key=${each.id} value=${each.id}>template ${each.name || each.id}</option>`)}</select></label>` : html`<label class="whole"><span>Session</span><input type="text" placeholder="session_…" value=${settings.session} onInput=${change("session")} /></label>`}
    ${isFixed ? html`<p class="whole muted">What it asks of its sessions is changed by a program: their environment is not shown whole here.</p>` : html`<label class="whole"><span>Message</span><textarea rows="3" placeholder="Say what to do" value=${text} onInput=${change("text")}></textarea></label>`}</div>
    ${isNewSession && agents.data?.length === 0 && html`<p class="banner">It needs an agent. <a href=${address("agents", "", { new: "yes" })}>Make one</a></p>`}
    <p class="line"><${Button} icon="ok" tone="primary" isOff=${!isReady} onClick=${press}>${label}</${Button}></p></section>`;
}

const INVOCATIONS = [
  { title: "Status", cell: (row) => html`<${Status} status=${row.status} />` },
  { title: "Invoked by", cell: (row) => (row.source.type === "manual" ? "somebody" : "its schedule") },
  { title: "Due", cell: (row) => (row.scheduled_at ? moment(row.scheduled_at * 1000) : "") },
  { title: "Created", cell: (row) => html`<${Ago} at=${row.created_at} />` },
  { title: "Session", cell: (row) => html`<${Id} id=${row.session_id} href=${address("sessions", row.session_id ?? "")} />` },
  { title: "Reason", wide: true, cell: (row) => (row.error ? html`<span class="bad">${row.error.message}</span>` : row.skip_reason ? "the one before was not delivered yet" : "") },
];

export function Automation() {
  const { id, query } = route.value;
  const path = `agents/automations/${encodeURIComponent(id)}`;
  const [again, reload] = useState(0);
  const found = useData((signal) => get(path, {}, signal), [id, again], { every: LOOK_MS });
  if (found.isLoading) return html`<${Skeleton} />`;
  if (!found.data) return html`<${Problem} message=${found.problem} onAgain=${found.reload} />`;
  const row = found.data;
  const act = async (action, said) => {
    const answer = await post(`${path}/${action}`);
    notify(answer.ok ? said : answer.message, answer.ok ? "note" : "bad");
    reload((number) => number + 1);
  };
  const change = async (body) => {
    const answer = await post(path, body);
    if (!answer.ok) return notify(answer.message, "bad");
    setQuery(route.value, { edit: "" });
    reload((number) => number + 1);
    return notify("The automation is changed.");
  };
  const erase = async () => {
    const answer = await remove(path);
    if (!answer.ok) return notify(answer.message, "bad");
    return go("automations");
  };
  const { target } = row;
  const isEdited = query.edit && !isReadOnly();
  const facts = [
    ["when", html`<${When} row=${row} />`],
    ["to", target.type === "existing_session" ? html`<${Id} id=${target.session_id} href=${address("sessions", target.session_id)} />` : "a new session each time"],
    ["agent", target.agent_id ? html`<${Id} id=${target.agent_id} href=${address("agents", target.agent_id)} />` : target.agent && `its own, ${target.agent.model}`],
    ["environment", target.environment && (target.environment.type === "none" ? "none" : target.environment.environment_template_id ? `template ${target.environment.environment_template_id}` : (target.environment.environment_id ?? "a container"))],
    ["message", html`<span class="said plain">${saidBy(row)}</span>`],
  ];
  return html`<header class="head"><div><h1><${Name}>${row.name}</${Name}></h1><p class="line"><${Status} status=${row.status} /><${Reason} row=${row} /><${Id} id=${id} whole=${true} /><${Ago} at=${row.created_at} /></p></div>
      <div class="actions"><${Acting}><${Button} icon="play" tone="primary" onClick=${() => act("invocations", "It is invoked.")}>Invoke now</${Button}>
        ${row.status === "paused" ? html`<${Button} icon="play" onClick=${() => act("resume", "It goes on.")}>Resume</${Button}>` : row.status === "active" && html`<${Button} icon="pause" onClick=${() => act("pause", "It is invoked no more.")}>Pause</${Button}>`}
        <${Button} onClick=${() => setQuery(route.value, { edit: isEdited ? "" : "yes" })}>${isEdited ? "Leave it as it is" : "Edit"}</${Button}><${Sure} onClick=${erase}>Delete</${Sure}></${Acting}></div></header>
    ${isEdited ? html`<${Form} automation=${row} label="Change the automation" send=${change} />` : html`<dl class="facts flush">${facts.filter(([, value]) => value).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`}
    <h2 class="pad-top">Invocations</h2><${Listing} path=${`${path}/invocations`} label="Invocations" columns=${INVOCATIONS} every=${LOOK_MS} again=${again} empty=${html`<p class="empty">It was not invoked yet.</p>`} />`;
}
