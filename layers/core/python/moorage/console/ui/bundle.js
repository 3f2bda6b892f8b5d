// What a version of a skill holds: its files, SKILL.md as it reads, and what another version has otherwise.
import { html } from "../html.js";
import { content } from "../api.js";
import { setQuery } from "../router.js";
import { route } from "../state.js";
import { bytes } from "../model/text.js";
import { entriesOf } from "../model/zip.js";
import { Lines } from "./diff.js";
import { useData } from "./data.js";
import { Markdown } from "./markdown.js";
import { Name, Problem, Skeleton } from "./parts.js";
import { Terminal } from "./terminal.js";

const TEXT_BYTES = 256 * 1024;

// path -> { size, text }, with a skill's own folder left off; `text` is null for what is none, or is long.
async function filesOf(skillId, version) {
  const answer = await content(`skills/${encodeURIComponent(skillId)}/versions/${encodeURIComponent(version)}/content`);
  if (!answer.ok) return answer;
  try {
    const entries = await entriesOf(answer.data);
    const files = await Promise.all(entries.map(async ({ path, size, read }) => [path.slice(path.indexOf("/") + 1), { size, text: size > TEXT_BYTES ? null : textOf(await read(TEXT_BYTES)) }]));
    return { ok: true, data: new Map(files) };
  } catch (error) {
    return { ok: false, message: error.message };
  }
}

const textOf = (data) => (data.includes(0) ? null : new TextDecoder().decode(data));

export function Contents({ skillId, version }) {
  const files = useData(() => filesOf(skillId, version), [skillId, version]);
  const open = route.value.query.file || "SKILL.md";
  const show = (file) => setQuery(route.value, { file });
  if (files.isLoading) return html`<${Skeleton} rows=${3} />`;
  if (!files.data) return html`<${Problem} message=${files.problem} onAgain=${files.reload} />`;
  const shown = files.data.get(open);
  return html`<div class="browse with-file"><ul class="tree" aria-label=${`Files of version ${version}`}>${[...files.data].map(([path, file]) => html`<li key=${path}><button type="button" class="entry" aria-pressed=${path === open} onClick=${() => show(path)}><span><${Name}>${path}</${Name}></span><span class="muted number">${bytes(file.size)}</span></button></li>`)}</ul>
    <section class="preview" aria-label=${`${open} of version ${version}`}>${!shown ? html`<p class="muted">It has no ${open}.</p>` : shown.text === null ? html`<p class="muted">No text, or more than ${bytes(TEXT_BYTES)}: save the version to look at it.</p>` : open === "SKILL.md" ? html`<${Manual} text=${shown.text} />` : html`<${Terminal} key=${open} text=${shown.text} stream="stdout" label=${open} fromStart=${true} />`}</section></div>`;
}

// What stands before the text is for programs: it is shown as it is written.
function Manual({ text }) {
  const [whole, head] = /^---\r?\n([\s\S]*?)\r?\n---\r?\n/.exec(text) ?? ["", ""];
  return html`${head && html`<pre class="block" tabindex="0">${head}</pre>`}<${Markdown} text=${text.slice(whole.length)} />`;
}

export function Versions({ skillId, before, after }) {
  const both = useData(async () => {
    const [was, is] = await Promise.all([filesOf(skillId, before), filesOf(skillId, after)]);
    return was.ok && is.ok ? { ok: true, data: [was.data, is.data] } : was.ok ? is : was;
  }, [skillId, before, after]);
  if (both.isLoading) return html`<${Skeleton} rows=${3} />`;
  if (!both.data) return html`<${Problem} message=${both.problem} onAgain=${both.reload} />`;
  const [was, is] = both.data;
  const paths = [...new Set([...was.keys(), ...is.keys()])].sort().filter((path) => was.get(path)?.text !== is.get(path)?.text || was.get(path)?.size !== is.get(path)?.size);
  if (!paths.length) return html`<p class="muted">Their files are the same.</p>`;
  return paths.map((path) => html`<section key=${path} class="pad-top"><h3><${Name}>${path}</${Name}> <span class="chip">${was.has(path) ? (is.has(path) ? "changed" : "gone") : "new"}</span></h3>
    <${Lines} path=${path} before=${was.has(path) ? was.get(path).text : ""} after=${is.has(path) ? is.get(path).text : ""} /></section>`);
}
