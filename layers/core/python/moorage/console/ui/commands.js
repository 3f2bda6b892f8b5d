// What only the operator's command line may do with keys: chosen here, typed there.
import { html } from "../html.js";
import { setQuery } from "../router.js";
import { command, route } from "../state.js";
import { ENDINGS, MEASURES, budget, made, revoked } from "../model/commands.js";
import { Code, Tabs } from "./parts.js";

const TASKS = [
  { id: "make", title: "Make a key" },
  { id: "budget", title: "Give it a budget" },
  { id: "look", title: "Let somebody look" },
  { id: "revoke", title: "Revoke a key" },
  { id: "limits", title: "Limits" },
];

// `keys` are ids. What is chosen stands in the address.
export function Commands({ tenant, keys }) {
  const { query } = route.value;
  const task = TASKS.some((each) => each.id === query.task) ? query.task : "make";
  const fill = (name) => (event) => setQuery(route.value, { [name]: event.target.value });
  const which = (first) => html`<label class="line"><span class="muted">of</span><select aria-label="Of" value=${query.of ?? ""} onChange=${fill("of")}>${first && html`<option value="">${first}</option>`}${keys.map((id) => html`<option key=${id} value=${id}>${id}</option>`)}</select></label>`;
  const View = { make: Make, budget: Budget, look: Look, revoke: Revoke, limits: Limits }[task];
  return html`<${Tabs} label="Commands" tabs=${TASKS} chosen=${task} onChoose=${(id) => setQuery(route.value, { task: id })} />
    <div class="tab-body commands"><${View} tenant=${tenant} keys=${keys} query=${query} fill=${fill} which=${which} /></div>`;
}

const Make = ({ tenant, query, fill }) => html`<div class="filters"><input type="text" aria-label="Name of a new key" placeholder="name, such as laptop" value=${query.name ?? ""} onInput=${fill("name")} /></div>
  <p class="muted">It is shown once, where the command is typed, and opens this tenant. With another name after <code>--tenant</code> it makes another tenant, that sees nothing of this one.</p><${Code} text=${command(made(tenant, query.name))} />`;

function Budget({ tenant, query, fill, which }) {
  const wanted = { of: query.of ?? "", measure: query.measure in MEASURES ? query.measure : "usd", limit: query.limit, ending: ENDINGS.includes(query.then) ? query.then : "stop" };
  return html`<div class="line">${which("all keys of the tenant")}<select aria-label="Measure" value=${wanted.measure} onChange=${fill("measure")}>${Object.keys(MEASURES).map((name) => html`<option key=${name} value=${name}>${name.replaceAll("_", " ")}</option>`)}</select>
      <input type="number" class="short" min="0" step="any" aria-label="At most" placeholder="at most" value=${query.limit ?? ""} onInput=${fill("limit")} />
      <label class="line"><span class="muted">then</span><select aria-label="Then" value=${wanted.ending} onChange=${fill("then")}>${ENDINGS.map((name) => html`<option key=${name}>${name}</option>`)}</select></label></div>
    <p class="muted">Steps that run are counted with what they may use at most, so that a budget is not overdrawn. Without a limit the command shows how it stands; <code>--reset</code> counts anew, <code>--remove</code> takes it away.</p><${Code} text=${command(budget(tenant, wanted))} />`;
}

const Look = () => html`<p class="muted">It prints an address of this console that is good for two minutes and once. Whoever opens it sees what this tenant has for fifteen minutes, and changes nothing.</p><${Code} text=${command("console --read-only --no-browser")} />`;

const Revoke = ({ query, keys, which }) => html`<div class="line">${which()}</div><p class="muted">Processes that have just seen it obey within 30 seconds. <code>${command("keys list")}</code> shows them all, never the keys themselves.</p><${Code} text=${command(revoked(keys.includes(query.of) ? query.of : (keys[0] ?? "KEY_ID")))} />`;

const Limits = () => html`<p class="muted">The same for every key, and set where the service starts. 0 is no limit.</p><${Code} text=${"MOORAGE_REQUESTS_PER_MINUTE=600\nMOORAGE_TOKENS_PER_MINUTE=2000000\nMOORAGE_RUNNING_RESPONSES_MAX=100\nMOORAGE_STORED_BYTES_MAX=2500000000000"} />`;
