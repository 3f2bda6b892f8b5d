// Vaults: credentials for agents' servers and containers. A secret goes in here, and none ever comes out.
import { html, useState } from "../html.js";
import { all, get, post, remove } from "../api.js";
import { address, go } from "../router.js";
import { command, notify, route } from "../state.js";
import { useData } from "../ui/data.js";
import { Acting, Ago, Button, Empty, Head, Id, Name, Problem, Skeleton, Sure } from "../ui/parts.js";
import { Listing, Table } from "../ui/list.js";
import { pairsText } from "../model/agents.js";
import { moment } from "../model/text.js";

const KINDS = { static_bearer: "bearer token", mcp_oauth: "OAuth token", environment_variable: "variable" };
const SECRETS = { static_bearer: "token", mcp_oauth: "access_token", environment_variable: "secret_value" };

const COLUMNS = [
  { title: "Name", wide: true, cell: (row) => html`<a href=${address("vaults", row.id)}><${Name}>${row.name || "unnamed"}</${Name}></a>` },
  { title: "Metadata", cell: (row) => pairsText(row.metadata) && html`<${Name}>${pairsText(row.metadata)}</${Name}>` },
  { title: "Created", cell: (row) => html`<${Ago} at=${row.created_at} />` },
  { title: "Id", desk: true, cell: (row) => html`<${Id} id=${row.id} href=${address("vaults", row.id)} />` },
];

export function Vaults() {
  const [name, setName] = useState("");
  const create = async () => {
    const answer = await post("vaults", name ? { name } : {});
    if (!answer.ok) return notify(answer.message, "bad");
    return go("vaults", answer.data.id);
  };
  return html`<${Head} title="Vaults" note="Credentials that sessions use: tokens of MCP servers, and values for the requests of containers."><${Acting}>
      <input type="text" aria-label="Name of a new vault" placeholder="name" value=${name} onInput=${(event) => setName(event.target.value)} /><${Button} icon="plus" onClick=${create}>New</${Button}></${Acting}></${Head}>
    <${Listing} path="vaults" label="Vaults" page="vaults" columns=${COLUMNS} empty=${html`<${Empty} title="No vault yet" code=${command("vaults create staging")}><p>A session names its vaults in <code>vault_ids</code>. Their secrets can be replaced and never read.</p></${Empty}>`} />`;
}

const hosts = (networking) => (networking.type === "limited" ? networking.allowed_hosts.join(", ") : "all hosts of the environment");

export function Vault() {
  const { id } = route.value;
  const path = `vaults/${encodeURIComponent(id)}`;
  const vault = useData((signal) => get(path, {}, signal), [id]);
  const held = useData((signal) => all(`${path}/credentials`, {}, { signal }), [id]);
  const [replaced, replace] = useState("");
  if (vault.isLoading) return html`<${Skeleton} />`;
  if (!vault.data) return html`<${Problem} message=${vault.problem} onAgain=${vault.reload} />`;
  const erase = async () => {
    const answer = await remove(path);
    if (!answer.ok) return notify(answer.message, "bad");
    return go("vaults");
  };
  const drop = async (row) => {
    const answer = await remove(`${path}/credentials/${row.id}`);
    notify(answer.ok ? "It is deleted." : answer.message, answer.ok ? "note" : "bad");
    held.reload();
  };
  const columns = [
    { title: "Name", cell: (row) => html`<${Name}>${row.name}</${Name}>` },
    { title: "What it is", cell: (row) => KINDS[row.auth.type] ?? row.auth.type },
    { title: "For", wide: true, cell: (row) => html`<code>${row.auth.mcp_server_url ?? row.auth.secret_name}</code> ${row.auth.networking && html`<span class="muted">at ${hosts(row.auth.networking)}</span>`}` },
    { title: "Expires", cell: (row) => (row.auth.expires_at ? html`${moment(Date.parse(row.auth.expires_at))}${row.auth.refresh && html` <span class="muted">then renewed</span>`}` : "") },
    { title: "Changed", cell: (row) => html`<${Ago} at=${row.updated_at} />` },
    { title: "Id", cell: (row) => html`<${Id} id=${row.id} />` },
    { title: "Actions", hidden: true, right: true, cell: (row) => html`<${Acting}><span class="line end-line"><${Button} onClick=${() => replace(replaced === row.id ? "" : row.id)}>Replace</${Button}><${Sure} label=${`Delete ${row.name}`} onClick=${() => drop(row)} /></span></${Acting}>` },
  ];
  const chosen = held.data?.find((row) => row.id === replaced);
  return html`<header class="head"><div><h1><${Name}>${vault.data.name || "Unnamed vault"}</${Name}></h1><p class="line"><${Id} id=${id} whole=${true} /><${Ago} at=${vault.data.created_at} /><span class="muted"><${Name}>${pairsText(vault.data.metadata)}</${Name}></span></p></div>
      <div class="actions"><${Acting}><${Sure} onClick=${erase}>Delete</${Sure}></${Acting}></div></header>
    <h2>Credentials</h2>${held.data ? (held.data.length ? html`<${Table} label="Credentials" columns=${columns} rows=${held.data} />` : html`<p class="empty">None yet.</p>`) : held.problem ? html`<${Problem} message=${held.problem} onAgain=${held.reload} />` : html`<${Skeleton} rows=${3} />`}
    <${Acting}>${chosen ? html`<${Replaced} key=${chosen.id} path=${path} row=${chosen} done=${() => (replace(""), held.reload())} />` : html`<${Added} path=${path} done=${held.reload} />`}</${Acting}>`;
}

const Secret = ({ label, value, onInput }) => html`<label><span>${label}</span><input type="password" autocomplete="off" value=${value} onInput=${(event) => onInput(event.target.value)} /></label>`;

function Replaced({ path, row, done }) {
  const [secret, type] = useState("");
  const send = async () => {
    const answer = await post(`${path}/credentials/${row.id}`, { auth: { type: row.auth.type, [SECRETS[row.auth.type]]: secret } });
    if (!answer.ok) return notify(answer.message, "bad");
    notify("The secret is replaced.");
    return done();
  };
  return html`<section class="form pad-top" aria-label=${`Replace the secret of ${row.name}`}><h2>Replace the secret of <${Name}>${row.name}</${Name}></h2><div class="settings"><${Secret} label=${row.auth.type === "environment_variable" ? "New value" : "New token"} value=${secret} onInput=${type} /></div>
    <p class="line"><${Button} icon="ok" tone="primary" isOff=${!secret} onClick=${send}>Replace it</${Button}><span class="muted">What is there cannot be shown.</span></p></section>`;
}

const NEW = { type: "static_bearer", name: "", url: "", variable: "", hosts: "", secret: "" };

function Added({ path, done }) {
  const [settings, set] = useState(NEW);
  const change = (name) => (event) => set((before) => ({ ...before, [name]: event.target.value }));
  const { type, name, url, variable, secret } = settings;
  const isVariable = type === "environment_variable";
  const allowed = settings.hosts.split(/[\s,]+/).filter(Boolean);
  const send = async () => {
    const networking = allowed.length ? { type: "limited", allowed_hosts: allowed } : { type: "unrestricted" };
    const auth = isVariable ? { type, secret_name: variable, secret_value: secret, networking } : { type, mcp_server_url: url, token: secret };
    const answer = await post(`${path}/credentials`, { name, auth });
    if (!answer.ok) return notify(answer.message, "bad");
    set({ ...NEW, type });
    return done();
  };
  return html`<section class="form pad-top" aria-label="Add a credential"><h2>Add a credential</h2><div class="settings">
    <label><span>What it is</span><select value=${type} onChange=${change("type")}><option value="static_bearer">bearer token of an MCP server</option><option value="environment_variable">variable of environments</option></select></label>
    <label><span>Name</span><input type="text" placeholder="depot" value=${name} onInput=${change("name")} /></label>
    ${isVariable ? html`<label><span>Variable</span><input type="text" placeholder="DEPOT_KEY" value=${variable} onInput=${change("variable")} /></label><label><span>Hosts that get it</span><input type="text" placeholder="all of the environment" value=${settings.hosts} onInput=${change("hosts")} /></label>` : html`<label><span>Address of the server</span><input type="text" placeholder="https://depot.example/mcp" value=${url} onInput=${change("url")} /></label>`}
    <${Secret} label=${isVariable ? "Value" : "Token"} value=${secret} onInput=${(value) => set((before) => ({ ...before, secret: value }))} /></div>
    <p class="line"><${Button} icon="plus" tone="primary" isOff=${!name || !secret || !(isVariable ? variable : url)} onClick=${send}>Add</${Button}><span class="muted">Nobody can read it afterwards. OAuth tokens with their renewal: <code>${command("vaults add")}</code></span></p></section>`;
}
