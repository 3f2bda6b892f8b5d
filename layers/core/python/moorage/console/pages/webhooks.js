// Addresses that are told of the ends of responses, and what became of what they were sent.
import { html, useState } from "../html.js";
import { all, get, post, remove } from "../api.js";
import { address, go } from "../router.js";
import { notify, route } from "../state.js";
import { useData } from "../ui/data.js";
import { Acting, Ago, Button, Code, Empty, Head, Id, Missing, Name, Problem, Skeleton, Sure } from "../ui/parts.js";
import { Listing, Table } from "../ui/list.js";
import { clock } from "../model/text.js";

const TONES = { active: "good", delivered: "good", failing: "warn", pending: "busy", disabled: "bad", failed: "bad" };
const State = ({ of }) => html`<span class=${`status ${TONES[of] ?? ""}`}>${of}</span>`;
const MISSING = html`<${Missing} title="Webhooks" what="This deployment tells nobody of its ends" how="It is of a version before /v1/webhook_endpoints, which hear of the ends of background responses. Until then a program follows a run: GET /v1/responses/{id}?stream=true goes on where it broke off." code="moorage ls --watch" />`;

const COLUMNS = [
  { title: "Name", cell: (row) => html`<a href=${address("webhooks", row.id)}><${Name}>${row.name}</${Name}></a>` },
  { title: "Address", wide: true, cell: (row) => html`<code>${row.url}</code>` },
  { title: "Tells of", cell: (row) => row.event_types.join(", ") },
  { title: "State", cell: (row) => html`<${State} of=${row.status ?? "active"} />` },
  { title: "Created", cell: (row) => html`<${Ago} at=${row.created_at} />` },
];

export function Webhooks() {
  const [again, reload] = useState(0);
  const [secret, show] = useState(null);
  const types = useData((signal) => get("webhook_event_types", {}, signal), []);
  if (types.isLoading) return html`<${Skeleton} />`;
  if (types.status === 404) return MISSING;
  if (!types.data) return html`<${Problem} message=${types.problem} onAgain=${types.reload} />`;
  const made = (value) => (show(value), reload((number) => number + 1));
  return html`<${Head} title="Webhooks" note="Signed as OpenAI signs them: client.webhooks.unwrap() checks it." />
    ${secret && html`<${Secret} value=${secret} />`}
    <${Acting}><${New} types=${types.data.data} made=${made} /></${Acting}>
    <${Listing} path="webhook_endpoints" label="Endpoints" page="webhooks" columns=${COLUMNS} again=${again} every=${5000} empty=${html`<${Empty} title="No endpoint yet"><p>An address that takes a POST: it hears of the end of each background response.</p></${Empty}>`} />`;
}

const Secret = ({ value }) => html`<aside class="banner"><b>The signing secret is shown now and never again.</b><${Code} text=${value} /></aside>`;

function New({ types, made }) {
  const [name, setName] = useState("");
  const [url, setUrl] = useState("");
  const [chosen, choose] = useState(new Set(types));
  const create = async () => {
    const answer = await post("webhook_endpoints", { name, url, event_types: [...chosen] });
    if (!answer.ok) return notify(answer.message, "bad");
    setName("");
    setUrl("");
    return made(answer.data.signing_secret);
  };
  const toggle = (type) => choose((before) => new Set(before.has(type) ? [...before].filter((each) => each !== type) : [...before, type]));
  return html`<div class="filters"><input type="text" aria-label="Name" placeholder="name" value=${name} onInput=${(event) => setName(event.target.value)} /><input type="text" aria-label="Address" placeholder="https://…" value=${url} onInput=${(event) => setUrl(event.target.value)} />
    <div class="chips" role="group" aria-label="Tells of">${types.map((type) => html`<button type="button" key=${type} class="chip" aria-pressed=${chosen.has(type)} onClick=${() => toggle(type)}>${type.replace("response.", "")}</button>`)}</div>
    <${Button} icon="plus" tone="primary" isOff=${!name || !url || !chosen.size} onClick=${create}>Add</${Button}></div>`;
}

export function Webhook() {
  const { id } = route.value;
  const path = `webhook_endpoints/${encodeURIComponent(id)}`;
  const [secret, show] = useState(null);
  const endpoint = useData((signal) => get(path, {}, signal), [id], { every: 5000 });
  const sent = useData((signal) => all(`${path}/deliveries`, {}, { most: 100, signal }), [id], { every: 3000 });
  if (endpoint.isLoading) return html`<${Skeleton} />`;
  if (!endpoint.data) return html`<${Problem} message=${endpoint.problem} onAgain=${endpoint.reload} />`;
  const { name, url, event_types, status, signing_secret_hint } = endpoint.data;
  const act = async (action, body, said) => {
    const answer = await post(`${path}/${action}`, body);
    if (answer.data?.signing_secret) show(answer.data.signing_secret);
    notify(answer.ok ? (typeof said === "function" ? said(answer.data) : said) : answer.message, answer.ok ? "note" : "bad");
    sent.reload();
  };
  const erase = async () => {
    const answer = await remove(path);
    if (!answer.ok) return notify(answer.message, "bad");
    return go("webhooks");
  };
  const columns = [
    { title: "Event", cell: (row) => row.event_type },
    { title: "Run", cell: (row) => html`<${Id} id=${row.response_id} href=${address("runs", row.response_id)} />` },
    { title: "State", cell: (row) => html`<${State} of=${row.status} />` },
    { title: "Attempts", wide: true, cell: (row) => html`<span title=${row.attempts.map((each) => `${clock(each.at)} ${each.status_code ?? each.error ?? ""}`).join("\n")}>${row.attempt_count}, the last: ${row.attempts.at(-1)?.status_code ?? row.attempts.at(-1)?.error ?? "none yet"}</span>` },
    { title: "Created", cell: (row) => html`<${Ago} at=${row.created_at} />` },
    { title: "Actions", hidden: true, right: true, cell: (row) => html`<${Acting}><${Button} onClick=${() => act(`deliveries/${encodeURIComponent(row.id)}/redeliver`, undefined, "It is sent again.")}>Send again</${Button}></${Acting}>` },
  ];
  return html`<header class="head"><div><h1><${Name}>${name}</${Name}></h1><p class="line"><code>${url}</code><${State} of=${status ?? "active"} /></p><p class="line"><${Id} id=${id} whole=${true} /><span class="muted">${event_types.join(", ")}</span><span class="muted">secret ${signing_secret_hint ?? ""}</span></p></div>
      <div class="actions"><${Acting}><${Button} onClick=${() => act("test", { event_type: event_types[0] }, (data) => `It answered ${data.status_code}.`)}>Send a test</${Button}>
        <${Button} onClick=${() => act("rotate_secret", { keep_old_secret_active_for_24_hours: true }, "The old secret holds for 24 hours.")}>New secret</${Button}><${Sure} onClick=${erase}>Delete</${Sure}></${Acting}></div></header>
    ${secret && html`<${Secret} value=${secret} />`}
    <h2>Deliveries</h2>${sent.data?.length ? html`<${Table} label="Deliveries" columns=${columns} rows=${sent.data} />` : html`<p class="empty">Nothing was sent yet.</p>`}`;
}
