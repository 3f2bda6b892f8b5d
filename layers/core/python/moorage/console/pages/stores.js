// Vector stores: what there is for models to search in.
import { html, useState } from "../html.js";
import { post } from "../api.js";
import { address, go } from "../router.js";
import { notify, now } from "../state.js";
import { Acting, Ago, Button, Empty, Head, Id, Missing, Name, Status } from "../ui/parts.js";
import { Listing, Search } from "../ui/list.js";
import { bytes, count, duration } from "../model/text.js";

export const Rest = ({ store }) =>
  store.expires_at === null
    ? html`<span class="muted">never</span>`
    : store.expires_at * 1000 > now.value
      ? html`<span class="number">in ${duration(store.expires_at * 1000 - now.value)}</span>`
      : html`<span class="muted">expired</span>`;

// How far the files of a store have been read, and how many could not be.
export function Progress({ counts }) {
  const read = counts.total - counts.in_progress;
  return html`<span class="line reading"><span class="number">${count(counts.completed)} of ${count(counts.total)}</span>${counts.in_progress > 0 && html`<progress aria-label="Files that were read" max=${counts.total} value=${read}></progress>`}
    ${counts.failed > 0 && html`<span class="bad number">${count(counts.failed)} failed</span>`}${counts.cancelled > 0 && html`<span class="muted number">${count(counts.cancelled)} cancelled</span>`}</span>`;
}

const COLUMNS = [
  { title: "Store", wide: true, cell: (row) => html`<a href=${address("vector_stores", row.id)} title=${row.description ?? ""}><${Name}>${row.name || "without a name"}</${Name}></a>` },
  { title: "Status", cell: (row) => html`<${Status} status=${row.status} />` },
  { title: "Files read", cell: (row) => html`<${Progress} counts=${row.file_counts} />` },
  { title: "Size", right: true, cell: (row) => bytes(row.usage_bytes) },
  { title: "Last used", cell: (row) => html`<${Ago} at=${row.last_active_at} />` },
  { title: "Expires", cell: (row) => html`<${Rest} store=${row} />` },
  { title: "Id", cell: (row) => html`<${Id} id=${row.id} href=${address("vector_stores", row.id)} />` },
];
const MISSING = html`<${Missing} title="Vector stores" what="This deployment has no vector stores" how="They come with the version of moorage that serves /v1/vector_stores." />`;

const EXAMPLE = `store = client.vector_stores.create(name="handbook")
with open("handbook.pdf", "rb") as file:
    client.vector_stores.files.upload_and_poll(vector_store_id=store.id, file=file)`;

export function Stores() {
  const [name, setName] = useState("");
  const [days, setDays] = useState("");
  const create = async () => {
    const answer = await post("vector_stores", { name, ...(Number(days) ? { expires_after: { anchor: "last_active_at", days: Number(days) } } : {}) });
    if (!answer.ok) return notify(answer.message, "bad");
    return go("vector_stores", answer.data.id);
  };
  return html`<${Head} title="Vector stores" note="Files, cut into passages that a search finds by their words and by what they mean."><${Acting}>
      <input type="text" aria-label="Name of a new store" placeholder="name" value=${name} onInput=${(event) => setName(event.target.value)} />
      <input type="number" class="short" min="1" max="365" aria-label="Days of rest after which it expires" placeholder="days" value=${days} onInput=${(event) => setDays(event.target.value)} /><${Button} icon="plus" tone="primary" onClick=${create}>New</${Button}></${Acting}></${Head}>
    <${Search} label="Filter vector stores" placeholder="Words of a name, or an id" />
    <${Listing} path="vector_stores" label="Vector stores" page="vector_stores" columns=${COLUMNS} every=${5000} missing=${MISSING} filter=${(row) => `${row.id} ${row.name} ${row.description ?? ""} ${row.status}`}
      empty=${html`<${Empty} title="No vector store yet" code=${EXAMPLE}><p>Make one above and drop files into it, or use the SDK. A response with <code>file_search</code> among its tools looks in those that it names.</p></${Empty}>`} />`;
}
