// Who asks, what bounds it, and how keys are made: by the command line alone, because no server may write them.
import { html } from "../html.js";
import { get } from "../api.js";
import { setQuery, address } from "../router.js";
import { me, now, route } from "../state.js";
import { useData } from "../ui/data.js";
import { Ago, Head, Id, Problem, Skeleton } from "../ui/parts.js";
import { Commands } from "../ui/commands.js";
import { Table } from "../ui/list.js";
import { Storage, useMe } from "../ui/storage.js";
import { count, dollars, duration, moment } from "../model/text.js";

const limit = (value, unit) => (value ? `${count(value)} ${unit}` : "no limit");

export function Keys() {
  const used = useData((signal) => get("usage", { group_by: "key" }, signal), []);
  const who = useMe();
  if (!me.value) return html`<${Skeleton} />`;
  const { key, tenant, limits, prices, storage } = who.data ?? me.value;
  const budgets = used.data?.budgets ?? me.value.budgets ?? [];
  const facts = [
    ["tenant", tenant],
    ["key", html`<${Id} id=${key.id} whole=${true} />`],
    ["name", key.name],
    ["may", key.scope === "read" ? "look, and change nothing" : "do everything within this tenant"],
    ["ends", key.expires_at ? `in ${duration(key.expires_at * 1000 - now.value)}, at ${moment(key.expires_at * 1000)}` : "when it is revoked"],
    ["made", html`<${Ago} at=${key.created_at} />`],
    ["requests", limit(limits.requests_per_minute, "a minute")],
    ["tokens", limit(limits.tokens_per_minute, "a minute")],
    ["responses at once", limit(limits.running_responses, "")],
    ["responses are kept for", duration(limits.retention_seconds * 1000)],
  ];
  const rows = (used.data?.data ?? []).filter((row) => row.id || row.responses);
  const priced = prices.filter((each) => each.price);
  return html`<${Head} title="Keys and tenants" note="A key belongs to one tenant. It sees and changes nothing of another." />
    <h2>This key</h2><dl class="facts flush">${facts.filter(([, value]) => value).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    <div class="pad-top"><${Storage} storage=${storage} /></div>
    ${budgets.length > 0 && html`<h2 class="pad-top">Budgets</h2><${Table} label="Budgets" columns=${BUDGETS} rows=${budgets.flatMap(measures)} />`}
    <h2 class="pad-top">Active keys of the last 30 days</h2>
    ${used.data ? (rows.length ? html`<${Table} label="Keys" columns=${COLUMNS} rows=${rows} />` : html`<p class="muted">No key has made a run yet.</p>`) : used.problem ? html`<${Problem} message=${used.problem} onAgain=${used.reload} />` : html`<${Skeleton} rows=${2} />`}
    <h2 class="pad-top">Make, limit and revoke</h2><p class="muted">Only the operator's command makes keys. The servers may not write them, so a server that was taken over makes none.</p>
    <${Commands} tenant=${tenant} keys=${[...new Set([key.id, ...rows.map((row) => row.id)])].filter(Boolean)} />
    <h2 class="pad-top">Prices</h2>${priced.length ? html`<${Table} label="Prices" columns=${PRICES} rows=${priced.map((each) => ({ id: each.model, ...each.price }))} />` : html`<p class="muted">No model has a known price. <code>price</code> in <code>models.toml</code> says it, and costs show everywhere.</p>`}`;
}

const BUDGETS = [
  { title: "Of", cell: (row) => row.of },
  { title: "Measure", wide: true, cell: (row) => row.name.replaceAll("_", " ") },
  { title: "Used", right: true, cell: (row) => row.shown(row.used) },
  { title: "Held by steps that run", right: true, cell: (row) => (row.held ? row.shown(row.held) : "") },
  { title: "Limit", right: true, cell: (row) => row.shown(row.limit) },
  { title: "Share", right: true, cell: (row) => html`<meter min="0" max=${row.limit} value=${row.used + row.held} aria-label=${`${row.name} of the ${row.of}`}></meter>` },
  { title: "Then", cell: (row) => row.then },
];

const measures = (budget) => Object.entries(budget.limits).map(([name, limit]) => ({ id: `${budget.scope} ${budget.id} ${name}`, of: `${budget.scope} ${budget.id}`, name, limit, used: budget.used[name] ?? 0, held: budget.held[name] ?? 0, then: budget.on_limit, shown: name === "usd" ? dollars : count }));

const COLUMNS = [
  { title: "Key", cell: (row) => html`<${Id} id=${row.id} whole=${true} href=${address("runs", "", { q: `key:${row.id}` })} />` },
  { title: "Runs", right: true, cell: (row) => count(row.responses) },
  { title: "Failed", right: true, cell: (row) => row.by_status.failed ?? "" },
  { title: "Tokens", right: true, cell: (row) => count(row.input_tokens + row.output_tokens) },
  { title: "Cost", right: true, cell: (row) => dollars(row.cost_usd) },
];

const PRICES = [
  { title: "Model", cell: (row) => row.id },
  { title: "A million tokens", wide: true, cell: (row) => Object.entries(row).filter(([name, value]) => name !== "id" && typeof value === "number").map(([name, value]) => `${name.replaceAll("_", " ")} ${dollars(value)}`).join(" · ") },
];
