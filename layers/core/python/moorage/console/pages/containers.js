// The sandboxes: which there are, what they may reach, and how long they stay.
import { html, useState } from "../html.js";
import { get, post } from "../api.js";
import { address, go } from "../router.js";
import { command, notify, now } from "../state.js";
import { Acting, Ago, Button, Empty, Head, Id, Name, Status } from "../ui/parts.js";
import { Listing, Search } from "../ui/list.js";
import { useData } from "../ui/data.js";
import { headline } from "../model/outcome.js";
import { duration, plural } from "../model/text.js";

export const network = (policy) => (policy?.type === "allowlist" ? `${policy.allowed_domains?.length ?? 0} hosts` : "closed");

const RUNS_COUNTED = 100;
const SLOWLY_MS = 15_000;

const columns = (runs) => [
  { title: "Name", wide: true, cell: (row) => html`<${Name}>${nameOf(row, runs)}</${Name}>` },
  { title: "Container", desk: true, cell: (row) => html`<${Id} id=${row.id} href=${address("containers", row.id)} />` },
  { title: "Status", cell: (row) => html`<${Status} status=${row.status} />` },
  { title: "Memory", desk: true, right: true, cell: (row) => row.memory_limit },
  { title: "Runs", desk: true, right: true, cell: (row) => runs && html`<${Runs} runs=${runs} id=${row.id} />` },
  { title: "Network", desk: true, cell: (row) => html`<span title=${(row.network_policy?.allowed_domains ?? []).join(", ")}>${network(row.network_policy)}</span>` },
  { title: "Created", desk: true, cell: (row) => html`<${Ago} at=${row.created_at} />` },
  { title: "Last active", cell: (row) => html`<${Ago} at=${row.last_active_at} />` },
  { title: "Expires in", desk: true, right: true, cell: (row) => html`<${Left} until=${row.expires_at} />` },
];

// Those that a response made are all called "auto": the words of their latest run tell them apart.
const nameOf = (row, runs) => (row.name === "auto" && headline(runs?.data.find((run) => run.container_id === row.id)?.input_preview ?? "")) || row.name;

export const runsOf = (id) => address("runs", "", { q: `container:${id}` });

// As many as are among the latest runs with a container: one request for all rows.
function Runs({ runs, id }) {
  const times = runs.data.filter((run) => run.container_id === id).length;
  const title = runs.has_more ? `Of the latest ${plural(runs.data.length, "run")} with a container; the link has all` : "";
  const shown = `${times}${runs.has_more ? "+" : ""}`;
  return html`<a href=${runsOf(id)} aria-label=${`${shown} ${shown === "1" ? "run" : "runs"} of ${id}`} title=${title}>${shown}</a>`;
}

export const Left = ({ until }) => (until * 1000 > now.value ? html`<span class="number">${duration(until * 1000 - now.value)}</span>` : html`<span class="muted">revives when used</span>`);

export function Containers() {
  const [name, setName] = useState("");
  const runs = useData((signal) => get("responses", { has_container: "true", limit: RUNS_COUNTED }, signal), [], { every: SLOWLY_MS });
  const create = async () => {
    const answer = await post("containers", { name: name || "from the console" });
    if (!answer.ok) return notify(answer.message, "bad");
    go("containers", answer.data.id);
    return undefined;
  };
  return html`<${Head} title="Containers" note="Each is a sandbox with files of its own under /mnt/data. One that expired comes back with them."><${Acting}>
      <input type="text" aria-label="Name of a new container" placeholder="name" value=${name} onInput=${(event) => setName(event.target.value)} /><${Button} icon="plus" onClick=${create}>New</${Button}></${Acting}></${Head}>
    <${Search} label="Filter containers" placeholder="Words of a name, or an id" />
    <${Listing} path="containers" label="Containers" page="containers" columns=${columns(runs.data)} every=${5000} filter=${(row) => `${row.id} ${nameOf(row, runs.data)} ${row.status}`}
      empty=${html`<${Empty} title="No container yet" code=${command("containers list")}><p>A response with a hosted shell or code interpreter makes one, or the button above.</p></${Empty}>`} />`;
}
