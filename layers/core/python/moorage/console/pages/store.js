// One vector store: how its files were read and why some were not, what a search finds in it, and when it ends.
import { html, useEffect, useState } from "../html.js";
import { call, get, post, remove } from "../api.js";
import { address, go, setQuery } from "../router.js";
import { isReadOnly, notify, route } from "../state.js";
import { useData } from "../ui/data.js";
import { Acting, Ago, Button, Code, Id, Name, Problem, Skeleton, Status, Sure, Tabs } from "../ui/parts.js";
import { Drop, choose } from "../ui/drop.js";
import { Listing } from "../ui/list.js";
import { Passages } from "../ui/passages.js";
import { Terminal } from "../ui/terminal.js";
import { isolated } from "../model/ansi.js";
import { filterOf } from "../model/passages.js";
import { bytes, count, plural } from "../model/text.js";
import { Progress, Rest } from "./stores.js";

const TABS = [
  { id: "files", title: "Files" },
  { id: "search", title: "Search" },
  { id: "facts", title: "Facts" },
];
const STATUSES = ["", "in_progress", "completed", "failed", "cancelled"];

export function Store() {
  const { id, query } = route.value;
  const path = `vector_stores/${encodeURIComponent(id)}`;
  const [again, reload] = useState(0);
  const found = useData((signal) => get(path, {}, signal), [id, again], { every: 3000 });
  if (found.isLoading) return html`<${Skeleton} />`;
  if (!found.data) return html`<${Problem} message=${found.problem} onAgain=${found.reload} />`;
  const store = found.data;
  const changed = () => reload((number) => number + 1);
  const erase = async () => {
    const answer = await remove(path);
    if (!answer.ok) return notify(answer.message, "bad");
    go("vector_stores");
    return notify("The store is gone. Its files stay.");
  };
  const View = { search: Asking, facts: Facts }[query.tab] ?? Files;
  return html`<${Drop} take=${(files) => put(path, files, changed)} label="Drop files to add them">
    <header class="head"><div><h1><${Name}>${store.name || "Vector store"}</${Name}></h1>${store.description && html`<p><${Name}>${store.description}</${Name}></p>`}
      <p class="line"><${Id} id=${id} whole=${true} /><${Status} status=${store.status} /><${Progress} counts=${store.file_counts} /><span class="number">${bytes(store.usage_bytes)}</span><span class="muted">expires</span><${Rest} store=${store} /></p></div>
      <div class="actions"><${Acting}>${store.status !== "expired" && html`<${Button} icon="upload" onClick=${() => choose((files) => put(path, files, changed))}>Add files</${Button}>`}<${Sure} onClick=${erase}>Delete</${Sure}></${Acting}></div></header>
    ${store.status === "expired" && html`<p class="banner"><b>It has expired.</b> It finds nothing and takes no files; make a new one of the same files.</p>`}
    <${Tabs} label="Store" tabs=${TABS} chosen=${query.tab ?? "files"} onChoose=${(tab) => setQuery(route.value, { tab })} />
    <div class="tab-body"><${View} key=${query.tab} store=${store} path=${path} again=${again} changed=${changed} /></div></${Drop}>`;
}

// Uploads come first, and one batch of what has arrived: one file that is refused stops no other.
async function put(path, files, done) {
  const file_ids = [];
  for (const { file } of files) {
    const form = new FormData();
    form.set("purpose", "assistants");
    form.set("file", file);
    const answer = await call("POST", "files", { form });
    if (answer.ok) file_ids.push(answer.data.id);
    else notify(`${isolated(file.name)}: ${answer.message}`, "bad");
  }
  if (file_ids.length) await add(path, file_ids, done);
}

async function add(path, file_ids, done) {
  const answer = await post(`${path}/file_batches`, { file_ids });
  notify(answer.ok ? (file_ids.length === 1 ? "The file is being read." : `${file_ids.length} files are being read.`) : answer.message, answer.ok ? "note" : "bad");
  done();
}

// --- its files ---

function Files({ store, path, again, changed }) {
  const { query } = route.value;
  const [known, setKnown] = useState("");
  const [open, show] = useState("");
  const shown = STATUSES.includes(query.show) ? query.show : "";
  const drop = async (row) => {
    const answer = await remove(`${path}/files/${row.id}`);
    notify(answer.ok ? `${isolated(row.filename)} is out of the store. The file itself stays.` : answer.message, answer.ok ? "note" : "bad");
    changed();
  };
  const anew = async (row) => {
    const answer = await post(`${path}/files`, { file_id: row.id, attributes: row.attributes, chunking_strategy: row.chunking_strategy });
    notify(answer.ok ? `${isolated(row.filename)} is read again.` : answer.message, answer.ok ? "note" : "bad");
    changed();
  };
  const take = () => add(path, [known.trim()], () => (setKnown(""), changed()));
  const isOpen = store.status !== "expired";
  const columns = [
    { title: "File", wide: true, cell: (row) => html`<a href=${address("files", row.id)} title=${row.id}><${Name}>${row.filename}</${Name}></a>` },
    { title: "Status", cell: (row) => html`<${Status} status=${row.status} />` },
    { title: "Size", right: true, cell: (row) => bytes(row.usage_bytes) },
    { title: "Passage size", cell: ({ chunking_strategy: { static: sizes } }) => html`<span class="number" title="Tokens of a passage, and how many of them it shares with the one before">${count(sizes.max_chunk_size_tokens)} / ${count(sizes.chunk_overlap_tokens)}</span>` },
    { title: "Attributes", cell: (row) => (row.last_error ? html`<span class="said-wrong"><b class="bad">${row.last_error.code.replaceAll("_", " ")}</b> <${Name}>${row.last_error.message}</${Name}></span>` : html`<${Attributes} of=${row.attributes} />`) },
    { title: "Added", cell: (row) => html`<${Ago} at=${row.created_at} />` },
    { title: "Actions", hidden: true, right: true, cell: (row) => html`<span class="line end-line">${row.status === "completed" && html`<${Button} tone="quiet" label=${`Text of ${row.filename}`} onClick=${() => show(open === row.id ? "" : row.id)}>Text</${Button}>`}
        ${isOpen && html`<${Acting}>${row.status !== "in_progress" && html`<${Button} tone="quiet" label=${`Read again: ${row.filename}`} onClick=${() => anew(row)}>Read again</${Button}>`}<${Sure} label=${`Take ${row.filename} out`} onClick=${() => drop(row)} /></${Acting}>`}</span>` },
  ];
  return html`<div class="filters"><div class="chips" role="group" aria-label="Which files">${STATUSES.map((status) => html`<button type="button" key=${status} class="chip" aria-pressed=${status === shown} onClick=${() => setQuery(route.value, { show: status })}>${status ? `${status.replace("_", " ")} ${count(store.file_counts[status])}` : `all ${count(store.file_counts.total)}`}</button>`)}</div>
      ${isOpen && html`<${Acting}><input type="text" aria-label="Id of an uploaded file" placeholder="file-… that was uploaded before" value=${known} onInput=${(event) => setKnown(event.target.value)} /><${Button} icon="plus" isOff=${!known.trim()} onClick=${take}>Add it</${Button}></${Acting}>`}</div>
    <${Listing} path=${`${path}/files`} query=${{ filter: shown }} label="Files of the store" columns=${columns} every=${3000} again=${again}
      empty=${html`<p class="empty">${shown ? "No file of this status." : "It has no files. Drop some here: text, code, PDF, Office documents."}</p>`} />
    ${open && html`<${Text} key=${open} path=${path} fileId=${open} />`}`;
}

const Attributes = ({ of }) => html`<span class="chips">${Object.entries(of).map(([name, value]) => html`<span class="chip" key=${name}><${Name}>${`${name}: ${value}`}</${Name}></span>`)}</span>`;

// What was read of a file: what searches see of it, which is not always what people see.
function Text({ path, fileId }) {
  const text = useData((signal) => get(`${path}/files/${encodeURIComponent(fileId)}/content`, {}, signal), [path, fileId]);
  if (text.isLoading) return html`<${Skeleton} rows=${3} />`;
  if (!text.data) return html`<${Problem} message=${text.problem} onAgain=${text.reload} />`;
  return html`<section class="pad-top" aria-label="Text that was read"><${Terminal} text=${text.data.data.map((part) => part.text).join("\n")} stream="stdout" label="Text that was read" fromStart=${true} /></section>`;
}

// --- a search ---

function Asking({ store, path }) {
  const { query } = route.value;
  const [text, type] = useState(query.ask ?? "");
  const [condition, limit] = useState(query.where ?? "");
  const [state, set] = useState({ hits: null, problem: "", isBusy: false });
  const search = async (asked, where) => {
    const { filter, problem } = filterOf(where);
    if (problem) return set({ hits: null, problem: `“${problem}” is no condition: write subject=sea, year>=2026 or title="two words".`, isBusy: false });
    set((before) => ({ ...before, isBusy: true }));
    const answer = await post(`${path}/search`, { query: asked, ...(filter ? { filters: filter } : {}) });
    return set({ hits: answer.ok ? answer.data.data.map((hit) => ({ ...hit, text: hit.content.map((part) => part.text).join("\n") })) : null, problem: answer.ok ? "" : answer.message, isBusy: false });
  };
  useEffect(() => {
    if (query.ask && !isReadOnly()) search(query.ask, query.where ?? "");
  }, [query.ask, query.where]);
  if (store.status === "expired") return html`<p class="empty">Nothing is found in a store that has expired.</p>`;
  if (isReadOnly()) return html`<p class="empty">This key looks and changes nothing: a search counts as use of the store.</p>`;
  const submit = (event) => {
    event.preventDefault();
    if (!text.trim()) return;
    if (text === query.ask && condition === (query.where ?? "")) search(text, condition);
    else setQuery(route.value, { ask: text, where: condition });
  };
  return html`<form class="filters" role="search" onSubmit=${submit}><input type="search" data-filter aria-label="Search the store" placeholder="What is to be found? A search counts as use." value=${text} onInput=${(event) => type(event.target.value)} />
      <input type="text" aria-label="Only files whose attributes fit" placeholder="only where: subject=sea year>=2026" value=${condition} onInput=${(event) => limit(event.target.value)} /><button class="button primary" disabled=${!text.trim() || state.isBusy}>Search</button></form>
    ${state.problem && html`<${Problem} message=${state.problem} />`}
    <div role="status" aria-label="Result of the search">${state.hits && html`<p class="muted">${state.hits.length ? `${plural(state.hits.length, "passage")}, the best first` : "Nothing was found."}</p>`}</div>
    ${state.hits && state.hits.length > 0 && html`<${Passages} hits=${state.hits} query=${query.ask ?? ""} />`}`;
}

// --- what holds for it ---

function Facts({ store, path, changed }) {
  const [name, setName] = useState(store.name);
  const [days, setDays] = useState(store.expires_after ? String(store.expires_after.days) : "");
  const save = async () => {
    const answer = await post(path, { name, expires_after: Number(days) ? { anchor: "last_active_at", days: Number(days) } : null });
    notify(answer.ok ? "The store is changed." : answer.message, answer.ok ? "note" : "bad");
    changed();
  };
  const metadata = Object.entries(store.metadata);
  const facts = [
    ["created", html`<${Ago} at=${store.created_at} />`],
    ["last used", html`<${Ago} at=${store.last_active_at} />`],
    ["size of texts and vectors", bytes(store.usage_bytes)],
    ["metadata", metadata.length > 0 && html`<${Attributes} of=${store.metadata} />`],
  ];
  const tool = { tools: [{ type: "file_search", vector_store_ids: [store.id] }], include: ["file_search_call.results"] };
  return html`<dl class="facts flush">${facts.filter(([, value]) => value).map(([title, value]) => html`<div key=${title}><dt>${title}</dt><dd>${value}</dd></div>`)}</dl>
    ${store.status !== "expired" && html`<${Acting}><div class="filters pad-top"><input type="text" aria-label="Name" placeholder="name" value=${name} onInput=${(event) => setName(event.target.value)} />
      <input type="number" class="short" min="1" max="365" aria-label="Days of rest after which it expires" placeholder="never" value=${days} onInput=${(event) => setDays(event.target.value)} /><${Button} onClick=${save}>Change</${Button}></div></${Acting}>`}
    <h2 class="pad-top">In a request</h2><${Code} text=${JSON.stringify(tool, null, 2)} />`;
}
