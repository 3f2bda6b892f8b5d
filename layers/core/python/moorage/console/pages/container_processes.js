// What runs in the sandbox of a container now, and on which ports it listens.
import { html } from "../html.js";
import { get } from "../api.js";
import { now } from "../state.js";
import { useData } from "../ui/data.js";
import { Table } from "../ui/list.js";
import { Name, Problem, Skeleton } from "../ui/parts.js";
import { bytes, duration } from "../model/text.js";

const LOOK_MS = 3000;
const CHARS_SHOWN = 160;

const COLUMNS = [
  { title: "Process", right: true, cell: (row) => row.pid },
  { title: "Command", wide: true, cell: (row) => html`<code title=${row.command}><${Name}>${row.command.length > CHARS_SHOWN ? `${row.command.slice(0, CHARS_SHOWN)} …` : row.command}</${Name}></code>` },
  { title: "Listens on", right: true, cell: (row) => (row.ports === null ? html`<span class="muted" title="It lets nobody look">unknown</span>` : row.ports.join(", ")) },
  { title: "Running for", right: true, cell: (row) => duration(Math.max(0, now.value - row.started_at)) },
  { title: "Processor time", right: true, cell: (row) => duration(row.cpu_seconds * 1000) },
  { title: "Memory", right: true, cell: (row) => bytes(row.memory_bytes) },
];

export function Processes({ container }) {
  const running = useData((signal) => get(`processes/${container.id}`, {}, signal), [container.id], { every: LOOK_MS });
  if (running.isLoading) return html`<${Skeleton} />`;
  if (running.problem) return html`<${Problem} message=${running.problem} onAgain=${running.reload} />`;
  const rows = running.data.data;
  if (!rows.length) return html`<p class="empty">Nothing runs in it. What a command leaves in the background (<code>setsid … &</code>), and what a terminal runs, stands here with the ports on which it listens.</p>`;
  return html`<p class="muted pad">They end with the sandbox. Ports are reached from inside of it, by commands and terminals.${running.data.has_more && ` The first ${rows.length}.`}</p>
    <${Table} label="Processes" columns=${COLUMNS} rows=${rows} />`;
}
