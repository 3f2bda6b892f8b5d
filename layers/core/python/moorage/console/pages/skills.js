// Skills: folders of know-how that shells are given, in versions.
import { html, useState } from "../html.js";
import { all, call, get, post, remove, save } from "../api.js";
import { address, go, setQuery } from "../router.js";
import { command, notify, route } from "../state.js";
import { useData } from "../ui/data.js";
import { Acting, Ago, Button, Code, Empty, Head, Id, Missing, Name, Problem, Skeleton, Sure } from "../ui/parts.js";
import { Contents, Versions } from "../ui/bundle.js";
import { Drop, choose } from "../ui/drop.js";
import { Listing, Table } from "../ui/list.js";
import { UsedBy } from "../ui/used.js";
import { isolated } from "../model/ansi.js";

const COLUMNS = [
  { title: "Skill", cell: (row) => html`<a href=${address("skills", row.id)}><${Name}>${row.name}</${Name}></a>` },
  { title: "What it is for", wide: true, cell: (row) => html`<span title=${row.description}><${Name}>${row.description}</${Name}></span>` },
  { title: "Default", right: true, cell: (row) => row.default_version },
  { title: "Latest", right: true, cell: (row) => row.latest_version },
  { title: "Id", cell: (row) => html`<${Id} id=${row.id} href=${address("skills", row.id)} />` },
];
const MISSING = html`<${Missing} title="Skills" what="This deployment has no skills" how="They come with the version of moorage that serves /v1/skills." />`;

// One zip file, or the files of a folder.
async function upload(path, files, done) {
  const form = new FormData();
  if (files.length === 1 && !files[0].path.includes("/")) form.set("files", files[0].file);
  else for (const { path: name, file } of files) form.append("files[]", file, name);
  const answer = await call("POST", path, { form });
  notify(answer.ok ? `${isolated(answer.data.name)} is there.` : answer.message, answer.ok ? "note" : "bad");
  if (answer.ok) done(answer.data);
}

// Two buttons, for browsers choose files or a folder and never either.
const Uploads = ({ path, done, label }) => html`<${Button} icon="upload" tone="primary" onClick=${() => choose((files) => upload(path, files, done), { accept: ".zip" })}>${label}</${Button}>
  <${Button} icon="folder" onClick=${() => choose((files) => upload(path, files, done), { webkitdirectory: true })}>A folder</${Button}>`;

export function Skills() {
  const [again, reload] = useState(0);
  const done = () => reload((number) => number + 1);
  return html`<${Drop} take=${(files) => upload("skills", files, done)} label="Drop a skill's folder or zip to upload it"><${Head} title="Skills" note="A shell's environment names those that it is given; the model reads them when it needs them. Drop a folder or a zip here to add one."><${Acting}><${Uploads} path="skills" done=${done} label="Upload a zip" /></${Acting}></${Head}>
    <${Listing} path="skills" label="Skills" page="skills" columns=${COLUMNS} again=${again} missing=${MISSING}
      empty=${html`<${Empty} title="No skills of your own yet" code=${command("skills push ./my-skill")}><p>A folder with a <code>SKILL.md</code>, pushed by the command line, dropped here or uploaded as a zip.</p></${Empty}>`} /></${Drop}>`;
}

export function Skill() {
  const { id, query } = route.value;
  const skill = useData((signal) => get(`skills/${encodeURIComponent(id)}`, {}, signal), [id]);
  const versions = useData((signal) => all(`skills/${encodeURIComponent(id)}/versions`, {}, { signal }), [id]);
  if (skill.isLoading) return html`<${Skeleton} />`;
  if (!skill.data) return html`<${Problem} message=${skill.problem} onAgain=${skill.reload} />`;
  const reload = () => (skill.reload(), versions.reload());
  const choose = async (version) => {
    const answer = await post(`skills/${id}`, { default_version: version });
    notify(answer.ok ? `Version ${version} is the default.` : answer.message, answer.ok ? "note" : "bad");
    reload();
  };
  const drop = async (version) => {
    const answer = await remove(`skills/${id}/versions/${version}`);
    notify(answer.ok ? `Version ${version} is deleted.` : answer.message, answer.ok ? "note" : "bad");
    reload();
  };
  const erase = async () => {
    const answer = await remove(`skills/${id}`);
    if (!answer.ok) return notify(answer.message, "bad");
    return go("skills");
  };
  const shown = query.version || skill.data.default_version;
  const others = (versions.data ?? []).filter((row) => row.version !== shown);
  const isDefault = (row) => row.version === skill.data.default_version;
  const columns = [
    { title: "Version", right: true, cell: (row) => html`<button type="button" class="chip" aria-pressed=${row.version === shown} aria-label=${`Version ${row.version}: what it holds`} onClick=${() => setQuery(route.value, { version: row.version, against: "", file: "" })}>${row.version}</button>` },
    { title: "What it is for", wide: true, cell: (row) => row.description },
    { title: "Created", cell: (row) => html`<${Ago} at=${row.created_at} />` },
    { title: "Actions", hidden: true, right: true, cell: (row) => html`<span class="line end-line">${isDefault(row) ? html`<span class="chip on">default</span>` : html`<${Acting}><${Button} onClick=${() => choose(row.version)}>Make default</${Button}><${Sure} label=${`Delete version ${row.version}`} onClick=${() => drop(row.version)} /></${Acting}>`}
      <${Button} icon="download" tone="quiet" label=${`Save version ${row.version}`} onClick=${() => save(`skills/${id}/versions/${row.version}/content`, `${row.name}-${row.version}.zip`)} /></span>` },
  ];
  return html`<${Drop} take=${(files) => upload(`skills/${id}/versions`, files, reload)} label="Drop a folder or a zip to make it the next version"><header class="head"><div><h1><${Name}>${skill.data.name}</${Name}></h1><p><${Name}>${skill.data.description}</${Name}></p><p class="line"><${Id} id=${id} whole=${true} /><${Ago} at=${skill.data.created_at} /></p></div>
      <div class="actions"><${Acting}><${Uploads} path=${`skills/${id}/versions`} done=${reload} label="New version" /><${Sure} onClick=${erase}>Delete</${Sure}></${Acting}></div></header>
    ${versions.data ? html`<${Table} label="Versions" columns=${columns} rows=${versions.data} />` : html`<${Skeleton} rows=${3} />`}
    <div class="line pad-top"><h2>Version ${shown}</h2>${others.length > 0 && html`<label class="line"><span class="muted">changes since</span><select value=${query.against ?? ""} onChange=${(event) => setQuery(route.value, { against: event.target.value })}><option value="">its files</option>${others.map((row) => html`<option key=${row.version} value=${row.version}>version ${row.version}</option>`)}</select></label>`}</div>
    ${query.against ? html`<${Versions} skillId=${id} before=${query.against} after=${shown} />` : html`<${Contents} key=${shown} skillId=${id} version=${shown} />`}
    <${UsedBy} key=${id} id=${id} />
    <h2 class="pad">In a request</h2><${Code} text=${JSON.stringify({ tools: [{ type: "shell", environment: { type: "container_auto", skills: [{ type: "skill_reference", skill_id: id }] } }] }, null, 2)} /></${Drop}>`;
}
