// Addresses that are told of the ends of responses, and what became of what they were sent.
import { html, useState } from "../html.js";
import { all, get, post, remove } from "../api.js";
import { address, go, setQuery } from "../router.js";
import { command, notify, route } from "../state.js";
import { useData } from "../ui/data.js";
import { Acting, Ago, Button, Code, Empty, Head, Id, Missing, Name, Problem, Skeleton, Sure } from "../ui/parts.js";
import { Listing, Table } from "../ui/list.js";
import { clock, duration, moment } from "../model/text.js";

const TONES = { active: "good", delivered: "good", failing: "warn", pending: "busy", disabled: "bad", failed: "bad" };
const State = ({ of }) => html`<span class=${`status ${TONES[of] ?? ""}`}>${of}</span>`;
const MISSING = html`<${Missing} title="Webhooks" what="This deployment tells nobody of its ends" how="It is of a version before /v1/webhook_endpoints, which hear of the ends of background responses. Until then a program follows a run: GET /v1/responses/{id}?stream=true goes on where it broke off." code=${command("ls --watch")} />`;

const COLUMNS = [
  { title: "Name", cell: (row) => html`<a href=${address("webhooks", row.id)}><${Name}>${row.name}</${Name}></a>` },
  { title: "Address", wide: true, cell: (row) => html`<code>${row.url}</code>` },
  { title: "Tells of", cell: (row) => row.event_types.join(", ") },
  { title: "State", cell: (row) => html`<${State} of=${row.status ?? "active"} />` },
  { title: "Created", cell: (row) => html`<${Ago} at=${row.created_at} />` },
  { title: "Id", cell: (row) => html`<${Id} id=${row.id} href=${address("webhooks", row.id)} />` },
];

export function Webhooks() {
  const [again, reload] = useState(0);
  const [secret, show] = useState(null);
  const types = useData((signal) => get("webhook_event_types", {}, signal), []);
  if (types.isLoading) return html`<${Skeleton} />`;
  if (types.status === 404) return MISSING;
  if (!types.data) return html`<${Problem} message=${types.problem} onAgain=${types.reload} />`;
  const create = async (wanted) => {
    const answer = await post("webhook_endpoints", wanted);
    if (!answer.ok) return notify(answer.message, "bad");
    show(answer.data.signing_secret);
    reload((number) => number + 1);
    return true;
  };
  return html`<${Head} title="Webhooks" note="Signed as OpenAI signs them: client.webhooks.unwrap() checks it." />
    ${secret && html`<${Secret} value=${secret} />`}
    <${Acting}><${Form} types=${types.data.data} label="Add" send=${create} /></${Acting}>
    <${Listing} path="webhook_endpoints" label="Endpoints" page="webhooks" columns=${COLUMNS} again=${again} every=${5000} empty=${html`<${Empty} title="No endpoint yet" code=${command("webhooks create https://hooks.example.com/moorage --event response.completed")}><p>An endpoint is an address of yours. It gets a POST when a background response ends.</p></${Empty}>`} />`;
}

const Secret = ({ value }) => html`<aside class="banner"><b>The signing secret is shown now and never again.</b><${Code} text=${value} /></aside>`;

// Of a new endpoint, or of one that is changed.
function Form({ types, endpoint, label, send }) {
  const [name, setName] = useState(endpoint?.name ?? "");
  const [url, setUrl] = useState(endpoint?.url ?? "");
  const [chosen, choose] = useState(new Set(endpoint?.event_types ?? types));
  const press = async () => {
    const isTaken = await send({ name, url, event_types: types.filter((type) => chosen.has(type)) });
    if (!isTaken || endpoint) return;
    setName("");
    setUrl("");
  };
  const toggle = (type) => choose((before) => new Set(before.has(type) ? [...before].filter((each) => each !== type) : [...before, type]));
  return html`<div class="filters"><input type="text" aria-label="Name" placeholder="name" value=${name} onInput=${(event) => setName(event.target.value)} /><input type="text" aria-label="Address" placeholder="https://…" value=${url} onInput=${(event) => setUrl(event.target.value)} />
    <div class="chips" role="group" aria-label="Tells of">${types.map((type) => html`<button type="button" key=${type} class="chip" aria-pressed=${chosen.has(type)} onClick=${() => toggle(type)}>${type.replace("response.", "")}</button>`)}</div>
    <${Button} icon=${endpoint ? "ok" : "plus"} tone="primary" isOff=${!name || !url || !chosen.size} onClick=${press}>${label}</${Button}></div>`;
}

export function Webhook() {
  const { id, query } = route.value;
  const path = `webhook_endpoints/${encodeURIComponent(id)}`;
  const [secret, show] = useState(null);
  const types = useData((signal) => get("webhook_event_types", {}, signal), []);
  const endpoint = useData((signal) => get(path, {}, signal), [id], { every: 5000 });
  const sent = useData((signal) => all(`${path}/deliveries`, {}, { most: 100, signal }), [id], { every: 3000 });
  if (endpoint.isLoading) return html`<${Skeleton} />`;
  if (!endpoint.data) return html`<${Problem} message=${endpoint.problem} onAgain=${endpoint.reload} />`;
  const { name, url, event_types, status, failing_since, signing_secret_hint } = endpoint.data;
  const act = async (action, body, said) => {
    const answer = await post(`${path}/${action}`, body);
    if (answer.data?.signing_secret) show(answer.data.signing_secret);
    notify(answer.ok ? (typeof said === "function" ? said(answer.data) : said) : answer.message, answer.ok ? "note" : "bad");
    endpoint.reload();
    sent.reload();
  };
  const change = async (wanted) => {
    const answer = await post(path, wanted);
    if (!answer.ok) return notify(answer.message, "bad");
    setQuery(route.value, { edit: "" });
    endpoint.reload();
    return notify("The endpoint is changed.");
  };
  const look = (row) => setQuery(route.value, { delivery: query.delivery === row.id ? "" : row.id });
  const shown = sent.data?.find((row) => row.id === query.delivery);
  const erase = async () => {
    const answer = await remove(path);
    if (!answer.ok) return notify(answer.message, "bad");
    return go("webhooks");
  };
  const columns = [
    { title: "Event", cell: (row) => row.event_type },
    { title: "Id", cell: (row) => html`<${Id} id=${row.id} />` },
    { title: "Run", cell: (row) => row.response_id && html`<${Id} id=${row.response_id} href=${address("runs", row.response_id)} />` },
    { title: "State", cell: (row) => html`<${State} of=${row.status} />` },
    { title: "Attempts", wide: true, cell: (row) => html`<button type="button" class="chip" aria-pressed=${row.id === query.delivery} aria-label=${`${tried(row)}: attempts of ${row.id}`} onClick=${() => look(row)}>${tried(row)}</button>` },
    { title: "Created", cell: (row) => html`<${Ago} at=${row.created_at} />` },
    { title: "Actions", hidden: true, right: true, cell: (row) => html`<${Acting}><${Button} onClick=${() => act(`deliveries/${encodeURIComponent(row.id)}/redeliver`, undefined, "It is sent again.")}>Send again</${Button}></${Acting}>` },
  ];
  return html`<header class="head"><div><h1><${Name}>${name}</${Name}></h1><p class="line"><code>${url}</code><${State} of=${status ?? "active"} />${failing_since && html`<span class="muted">since <${Ago} at=${failing_since} /></span>`}</p><p class="line"><${Id} id=${id} whole=${true} /><span class="muted">${event_types.join(", ")}</span><span class="muted">secret ${signing_secret_hint ?? ""}</span></p></div>
      <div class="actions"><${Acting}><${Button} onClick=${() => setQuery(route.value, { edit: query.edit ? "" : "yes" })}>${query.edit ? "Leave it as it is" : "Edit"}</${Button}><${Button} onClick=${() => act("test", { event_type: event_types[0] }, (data) => `It answered ${data.status_code}.`)}>Send a test</${Button}>
        <${Button} onClick=${() => act("rotate_secret", { keep_old_secret_active_for_24_hours: true }, "The old secret holds for 24 hours.")}>New secret</${Button}><${Sure} onClick=${erase}>Delete</${Sure}></${Acting}></div></header>
    ${secret && html`<${Secret} value=${secret} />`}
    ${status === "disabled" && html`<p class="banner"><b>It gets nothing more:</b> no attempt has succeeded for 72 hours. A test that it takes, or another address, brings it back.</p>`}
    ${query.edit && types.data && html`<${Acting}><${Form} key=${url} types=${types.data.data} endpoint=${endpoint.data} label="Change" send=${change} /></${Acting}>`}
    <h2>Deliveries</h2>${sent.data?.length ? html`<${Table} label="Deliveries" columns=${columns} rows=${sent.data} />` : html`<p class="empty">Nothing was sent yet.</p>`}
    ${shown && html`<${Attempts} of=${shown} />`}`;
}

const tried = (row) => `${row.attempt_count}, the last: ${row.attempts.at(-1)?.status_code ?? row.attempts.at(-1)?.error ?? "none yet"}`;

const ATTEMPTS = [
  { title: "At", cell: (row) => html`<time title=${moment(row.at)}>${clock(row.at)}</time>` },
  { title: "Answered", cell: (row) => row.status_code ?? "" },
  { title: "Took", right: true, cell: (row) => duration(row.duration_ms) },
  { title: "Otherwise", wide: true, cell: (row) => (row.error ? html`<span class="bad">${row.error}</span>` : "") },
];

const Attempts = ({ of }) => html`<section class="pad-top" aria-label=${`Attempts of ${of.id}`}><h3>Attempts <span class="muted">${of.attempt_count > of.attempts.length ? `the latest ${of.attempts.length} of ${of.attempt_count}` : ""}${of.next_attempt_at ? `the next at ${clock(of.next_attempt_at * 1000)}` : ""}</span></h3>
  ${of.attempts.length ? html`<${Table} label="Attempts" columns=${ATTEMPTS} rows=${[...of.attempts].reverse()} />` : html`<p class="muted">None was made yet.</p>`}</section>`;
