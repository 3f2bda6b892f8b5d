// Who uses a file or a skill, as far as one looks: nobody keeps a list of it, so it is looked for when somebody asks.
import { html, useState } from "../html.js";
import { all, get, sideBySide } from "../api.js";
import { address } from "../router.js";
import { notify } from "../state.js";
import { uses } from "../model/uses.js";
import { plural } from "../model/text.js";
import { Table } from "./list.js";
import { Ago, Button, Id, Name, Status } from "./parts.js";

const RUNS_READ = 40;
const STORES_READ = 50;
const FILES_READ = 500;
const CONTAINERS_READ = 50;
const AT_ONCE = 6;

const RUNS = [
  { title: "Status", cell: (row) => html`<${Status} status=${row.status} />` },
  { title: "Run", wide: true, cell: (row) => html`<a href=${address("runs", row.id)}><${Name}>${row.input_preview || row.id}</${Name}></a>` },
  { title: "How", cell: (row) => row.how },
  { title: "Container", cell: (row) => html`<${Id} id=${row.containerId} href=${row.containerId && address("containers", row.containerId)} />` },
  { title: "Created", cell: (row) => html`<${Ago} at=${row.created_at} />` },
];
const STORES = [
  { title: "Vector store", wide: true, cell: (row) => html`<a href=${address("vector_stores", row.id)}><${Name}>${row.name || row.id}</${Name}></a>` },
  { title: "Status of the file", cell: (row) => html`<${Status} status=${row.status} />` },
];

const CONTAINERS = [
  { title: "Container", wide: true, cell: (row) => html`<a href=${address("containers", row.id)}><${Name}>${row.name || row.id}</${Name}></a>` },
  { title: "As", cell: (row) => html`<${Name}>${row.copy}</${Name}>` },
  { title: "Status", cell: (row) => html`<${Status} status=${row.status} />` },
  { title: "Created", cell: (row) => html`<${Ago} at=${row.created_at} />` },
];

// A refusal of any of them is the answer of all.
const whole = (answers, data) => answers.find((answer) => !answer.ok && answer.status !== 404) ?? { ok: true, data };

async function inRuns(id) {
  const page = await get("responses", { limit: RUNS_READ });
  if (!page.ok) return page;
  const told = await sideBySide(page.data.data, async (row) => {
    const path = `responses/${encodeURIComponent(row.id)}`;
    const [response, input] = await Promise.all([get(path), all(`${path}/input_items`, {}, { most: 100 })]);
    return response.ok && input.ok ? { ok: true, row, use: uses(id, response.data, input.data) } : response.ok ? input : response;
  }, AT_ONCE);
  const rows = told.filter((each) => each.ok && each.use).map(({ row, use }) => ({ ...row, ...use }));
  return whole(told, { rows, read: page.data.data.length, hasMore: page.data.has_more });
}

async function inStores(id) {
  const stores = await all("vector_stores", {}, { most: STORES_READ });
  if (!stores.ok) return stores.status === 404 ? { ok: true, data: null } : stores;
  const told = await sideBySide(stores.data, async (store) => {
    const files = await all(`vector_stores/${encodeURIComponent(store.id)}/files`, {}, { most: FILES_READ });
    const file = files.ok ? files.data.find((each) => each.id === id) : null;
    return files.ok ? { ok: true, isCut: files.hasMore && !file, row: file && { id: store.id, name: store.name, status: file.status } } : files;
  }, AT_ONCE);
  const rows = told.filter((each) => each.ok && each.row).map((each) => each.row);
  return whole(told, { rows, read: stores.data.length, hasMore: stores.hasMore || told.some((each) => each.isCut) });
}

// A container has a copy, and tells of which file or of which skill.
async function inContainers(id, isFile) {
  const page = await all("containers", {}, { most: CONTAINERS_READ });
  if (!page.ok) return page;
  const told = await sideBySide(page.data, async (row) => {
    const path = `containers/${encodeURIComponent(row.id)}`;
    const given = await (isFile ? get(`${path}/tree`) : all(`${path}/skills`));
    const copy = given.ok && (isFile ? given.data.data.find((entry) => entry.file_id === id) : given.data.find((each) => each.skill_id === id));
    return given.ok ? { ok: true, row: copy && { ...row, copy: isFile ? copy.path : `version ${copy.version}` } } : given;
  }, AT_ONCE);
  return whole(told, { rows: told.filter((each) => each.ok && each.row).map((each) => each.row), read: page.data.length, hasMore: page.hasMore });
}

const NONE = { ok: true, data: null };

// `id` is that of a file, or of a skill.
export function UsedBy({ id, isFile = false }) {
  const [found, know] = useState(null);
  const look = async () => {
    const answers = await Promise.all([inRuns(id), isFile ? inStores(id) : NONE, inContainers(id, isFile)]);
    const refused = answers.find((answer) => !answer.ok);
    if (refused) return notify(refused.message, "bad");
    return know(answers.map((answer) => answer.data));
  };
  if (!found) return html`<p class="line pad-top"><${Button} icon="search" onClick=${look}>Show uses</${Button}><span class="muted">reads the latest ${RUNS_READ} runs${isFile ? `, ${STORES_READ} vector stores` : ""} and ${CONTAINERS_READ} containers</span></p>`;
  const [runs, stores, containers] = found;
  const read = [[runs, "run"], [stores, "vector store"], [containers, "container"]].filter(([part]) => part).map(([part, name]) => `${part.hasMore ? "the latest " : ""}${plural(part.read, name)}`);
  return html`<section aria-label="Used by"><h2 class="pad-top">Used by</h2>
    ${runs.rows.length > 0 && html`<${Table} label="Runs that use it" columns=${RUNS} rows=${runs.rows} />`}
    ${stores?.rows.length > 0 && html`<${Table} label="Vector stores that hold it" columns=${STORES} rows=${stores.rows} />`}
    ${containers?.rows.length > 0 && html`<${Table} label="Containers that were given it" columns=${CONTAINERS} rows=${containers.rows} />`}
    <p class="muted" role="status">${found.some((part) => part?.rows.length) ? "" : "Nobody, as far as was looked. "}Looked at ${read.join(", ")}.</p></section>`;
}
