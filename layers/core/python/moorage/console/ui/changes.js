// What became of a run's files between two moments: which came, went and changed, and how, line by line.
import { html, useMemo } from "../html.js";
import { content, get } from "../api.js";
import { bytes } from "../model/text.js";
import { diff, hunks } from "../model/diff.js";
import { printable } from "../model/ansi.js";
import { useData } from "./data.js";
import { Problem, Skeleton } from "./parts.js";

const TEXT_BYTES = 256 * 1024;
const LINES_SHOWN = 1000;

// A response as of an event. Whoever drags the cursor asks for the last of its places alone.
export const asOf = (id, at, signal) => new Promise((resolve) => setTimeout(() => resolve(signal.aborted ? { ok: false, isAborted: true } : get(`responses/${encodeURIComponent(id)}`, { at }, signal)), 200));

// [{ path, state, file, was }] of two lists of files; what stayed as it was is none of it.
export function changed(before, after) {
  const earlier = new Map(before.map((file) => [file.path, file]));
  const later = new Map(after.map((file) => [file.path, file]));
  return [...new Set([...earlier.keys(), ...later.keys()])].sort().flatMap((path) => {
    const [was, file] = [earlier.get(path), later.get(path)];
    if (was && file) return was.sha256 === file.sha256 ? [] : [{ path, state: "changed", file, was }];
    return [{ path, state: file ? "new" : "gone", file, was }];
  });
}

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
