// What became of a file between two moments, line by line.
import { html, useMemo } from "../html.js";
import { content } from "../api.js";
import { bytes } from "../model/text.js";
import { diff, hunks } from "../model/diff.js";
import { printable } from "../model/ansi.js";
import { useData } from "./data.js";
import { Problem, Skeleton } from "./parts.js";

const TEXT_BYTES = 256 * 1024;
const LINES_SHOWN = 1000;

export function Diff({ containerId, change, before, after }) {
  const text = (file, at) => (file ? read(`containers/${containerId}/files/${file.id}/content?at=${at}`, file.bytes) : { ok: true, data: "" });
  const both = useData(async () => {
    const [was, is] = await Promise.all([text(change.was, before), text(change.file, after)]);
    return was.ok && is.ok ? { ok: true, data: [was.data, is.data] } : { ok: false, message: (was.ok ? is : was).message };
  }, [containerId, change.path, before, after]);
  if (both.isLoading) return html`<${Skeleton} rows=${2} />`;
  if (both.problem) return html`<${Problem} message=${both.problem} />`;
  return html`<${Lines} path=${change.path} before=${both.data[0]} after=${both.data[1]} />`;
}

// What became of a text, line by line; null is what is no text.
export function Lines({ path, before, after }) {
  const found = useMemo(() => (before === null || after === null ? null : hunks(diff(before, after))), [before, after]);
  if (!found) return html`<p class="muted">No text, or more than ${bytes(TEXT_BYTES)}.</p>`;
  const lines = found.flatMap((hunk, at) => (at ? [null, ...hunk] : hunk));
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${`Changes of ${path}`}><table class="diff"><tbody>${lines.slice(0, LINES_SHOWN).map((line, at) => (line ? html`<${Line} key=${at} line=${line} />` : html`<tr key=${at}><td colspan="4" class="muted">⋯</td></tr>`))}</tbody></table>
    ${lines.length > LINES_SHOWN && html`<p class="muted">${lines.length - LINES_SHOWN} more lines.</p>`}</div>`;
}

const TONES = { "+": "added", "-": "removed", " ": "" };

const Line = ({ line }) => html`<tr class=${TONES[line.kind]}><td class="number muted">${line.before ?? ""}</td><td class="number muted">${line.after ?? ""}</td>
  <td>${line.kind}${TONES[line.kind] && html`<span class="unseen">${TONES[line.kind]}</span>`}</td><td><pre dir="ltr">${printable(line.text.replace(/\n$/, ""))}</pre></td></tr>`;

// A file's text; null for what is none.
async function read(path, size) {
  if (size > TEXT_BYTES) return { ok: true, data: null };
  if (size === 0) return { ok: true, data: "" };
  const answer = await content(path);
  if (!answer.ok) return answer;
  const data = new Uint8Array(await answer.data.arrayBuffer());
  return { ok: true, data: data.includes(0) ? null : new TextDecoder().decode(data) };
}
