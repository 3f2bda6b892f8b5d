// All that was run in a container, run by run, with what it printed. What is far from sight is not loaded.
import { html, useRef } from "../html.js";
import { get } from "../api.js";
import { address } from "../router.js";
import { headline } from "../model/outcome.js";
import { Item } from "../ui/cards.js";
import { useData } from "../ui/data.js";
import { Ago, Name, Problem, Skeleton, Status } from "../ui/parts.js";
import { Block } from "../ui/virtual.js";

const RUNS_MAX = 50;

export function Commands({ container }) {
  const runs = useData((signal) => get("responses", { container: container.id, limit: RUNS_MAX }, signal), [container.id], { every: 5000 });
  const box = useRef(null);
  if (runs.isLoading) return html`<${Skeleton} />`;
  if (runs.problem && !runs.data) return html`<${Problem} message=${runs.problem} onAgain=${runs.reload} />`;
  const rows = runs.data.data;
  if (!rows.length) return html`<p class="empty">No run has used it. What is typed in a terminal is not kept.</p>`;
  return html`<div ref=${box}>${rows.map((row) => html`<article key=${row.id} class="round" aria-label=${row.input_preview || row.id}>
      <h2 class="round-head"><a href=${address("runs", row.id)}><${Name}>${headline(row.input_preview) || row.input_preview || row.id}</${Name}></a><span class="line"><${Status} status=${row.status} /><${Ago} at=${row.created_at} /></span></h2>
      <${Block} guess=${160}><${OfRun} row=${row} container=${container} /></${Block}></article>`)}
    ${runs.data.has_more && html`<p class="muted">The latest ${RUNS_MAX} runs. <a href=${address("runs", "", { q: `container:${container.id}` })}>All of them</a></p>`}</div>`;
}

function OfRun({ row, container }) {
  const run = useData((signal) => get(`responses/${row.id}`, {}, signal), [row.id, row.status], { every: row.ended_at ? 0 : 3000 });
  if (run.isLoading) return html`<${Skeleton} rows=${2} />`;
  if (!run.data) return html`<${Problem} message=${run.problem} onAgain=${run.reload} />`;
  const items = ranIn(run.data.output, container.id);
  if (!items.length) return html`<p class="muted">It has run nothing here.</p>`;
  return items.map((item) => html`<${Item} key=${item.id} item=${item} mark=${{ commands: [] }} isDone=${item.status !== "in_progress"} />`);
}

// Calls that ran in this container, each with its output.
export function ranIn(output, containerId) {
  const isHere = (item) => (item.environment?.container_id ?? item.container_id) === containerId;
  const calls = new Set(output.filter((item) => isHere(item) && item.call_id).map((item) => item.call_id));
  return output.filter((item) => isHere(item) || (item.type.endsWith("_output") && calls.has(item.call_id)));
}
