// Uploaded files.
import { html, useState } from "../html.js";
import { call, get, remove } from "../api.js";
import { address, go } from "../router.js";
import { command, notify, route } from "../state.js";
import { useData } from "../ui/data.js";
import { Acting, Ago, Button, Empty, Head, Id, Name, Problem, Skeleton, Sure } from "../ui/parts.js";
import { Drop, choose } from "../ui/drop.js";
import { Listing, Search } from "../ui/list.js";
import { Preview } from "../ui/preview.js";
import { UsedBy } from "../ui/used.js";
import { isolated } from "../model/ansi.js";
import { bytes, moment } from "../model/text.js";

const COLUMNS = [
  { title: "Name", wide: true, cell: (row) => html`<a href=${address("files", row.id)}><${Name}>${row.filename}</${Name}></a>` },
  { title: "File", cell: (row) => html`<${Id} id=${row.id} href=${address("files", row.id)} />` },
  { title: "Purpose", cell: (row) => row.purpose },
  { title: "Size", right: true, cell: (row) => bytes(row.bytes) },
  { title: "Created", cell: (row) => html`<${Ago} at=${row.created_at} />` },
  { title: "Expires", cell: (row) => (row.expires_at ? moment(row.expires_at * 1000) : html`<span class="muted">never</span>`) },
];

export function Files() {
  const [again, reload] = useState(0);
  if (route.value.id) return html`<${File} />`;
  const put = async (files) => {
    for (const { file } of files) {
      const form = new FormData();
      form.set("purpose", "user_data");
      form.set("file", file);
      const answer = await call("POST", "files", { form });
      notify(answer.ok ? `${isolated(file.name)} is ${answer.data.id}.` : answer.message, answer.ok ? "note" : "bad");
    }
    reload((number) => number + 1);
  };
  return html`<${Drop} take=${put} label="Drop files to upload them">
    <${Head} title="Files" note="What programs have uploaded. Drop files here to add some."><${Acting}><${Button} icon="upload" tone="primary" onClick=${() => choose(put)}>Upload</${Button}></${Acting}></${Head}>
    <${Search} label="Filter files" placeholder="Words of a name, or an id" />
    <${Listing} path="files" label="Files" page="files" columns=${COLUMNS} again=${again} filter=${(row) => `${row.id} ${row.filename} ${row.purpose}`}
      empty=${html`<${Empty} title="No files yet" code=${command("files put report.csv")}><p>Upload some here, by <code>client.files.create</code>, or with the command line.</p></${Empty}>`} /></${Drop}>`;
}

function File() {
  const { id } = route.value;
  const file = useData((signal) => get(`files/${encodeURIComponent(id)}`, {}, signal), [id]);
  if (file.isLoading) return html`<${Skeleton} />`;
  if (!file.data) return html`<${Problem} message=${file.problem} onAgain=${file.reload} />`;
  const { filename, purpose, created_at, expires_at } = file.data;
  const erase = async () => {
    const answer = await remove(`files/${id}`);
    if (!answer.ok) return notify(answer.message, "bad");
    return go("files");
  };
  return html`<header class="head"><div><h1><${Name}>${filename}</${Name}></h1><p class="line"><${Id} id=${id} whole=${true} /><span class="muted">${purpose}</span><${Ago} at=${created_at} />${expires_at && html`<span class="muted">until ${moment(expires_at * 1000)}</span>`}</p></div>
      <div class="actions"><${Acting}><${Sure} onClick=${erase}>Delete</${Sure}></${Acting}></div></header>
    <${Preview} path=${`files/${id}/content`} name=${filename} size=${file.data.bytes} /><${UsedBy} key=${id} id=${id} isFile=${true} />`;
}
