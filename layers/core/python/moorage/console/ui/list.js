// A list of the API as a table, page by page.
import { html, useEffect, useState } from "../html.js";
import { get } from "../api.js";
import { go, setQuery } from "../router.js";
import { notify, route } from "../state.js";
import { useData, useKeys } from "./data.js";
import { Button, Problem, Skeleton } from "./parts.js";

const PAGE = 50;

// columns: [{ title, cell(row), right, desk }]; those of `desk` are left out on a phone, where a row has the page of its thing behind it. `missing` stands for a list that this deployment does not have.
export function Table({ label, columns, rows, chosen = -1, onOpen }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}><table class="list">
    <thead><tr>${columns.map((column) => html`<th scope="col" key=${column.title} class=${column.right ? "r" : ""}>${column.hidden ? html`<span class="unseen">${column.title}</span>` : column.title}</th>`)}</tr></thead>
    <tbody>${rows.map((row, at) => html`<tr key=${row.id ?? at} class=${`${onOpen ? "opens" : ""} ${at === chosen ? "chosen" : ""}`} onClick=${(event) => onOpen && !event.target.closest("a,button,input,select") && onOpen(row)}>
      ${columns.map((column) => html`<td key=${column.title} data-title=${column.hidden ? undefined : column.title} class=${`${column.right ? "r number" : ""} ${column.wide ? "wide" : ""} ${column.desk ? "desk" : ""}`}>${column.cell(row)}</td>`)}</tr>`)}</tbody></table></div>`;
}

export function Listing({ path, query = {}, columns, label, empty, missing, page, every = 0, again = 0, filter = null }) {
  const [older, add] = useState({ rows: [], after: null, hasMore: null });
  const [chosen, choose] = useState(-1);
  const head = useData((signal) => get(path, { limit: PAGE, ...query }, signal), [path, JSON.stringify(query), again], { every });
  useEffect(() => add({ rows: [], after: null, hasMore: null }), [path, JSON.stringify(query), again]);
  const first = head.data?.data ?? [];
  const known = new Set(first.map((row) => row.id));
  const all = [...first, ...older.rows.filter((row) => !known.has(row.id))];
  const words = (route.value.query.q ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  const rows = filter ? all.filter((row) => words.every((word) => filter(row).toLowerCase().includes(word))) : all;
  const open = page && ((row) => go(page, row.id));
  useKeys(
    (event) => {
      if (event.key === "j" || event.key === "k") choose((at) => Math.min(rows.length - 1, Math.max(0, at + (event.key === "j" ? 1 : -1))));
      else if (event.key === "Enter" && open && rows[chosen] && event.target === document.body) open(rows[chosen]);
    },
  );
  if (head.isLoading) return html`<${Skeleton} />`;
  if (head.status === 404 && missing) return missing;
  if (head.problem && !all.length) return html`<${Problem} message=${head.problem} onAgain=${head.reload} />`;
  if (!all.length) return empty;
  const hasMore = older.hasMore ?? head.data.has_more;
  const more = async () => {
    const answer = await get(path, { limit: PAGE, ...query, after: older.after ?? head.data.last_id });
    if (!answer.ok) return notify(answer.message, "bad");
    add({ rows: [...older.rows, ...answer.data.data], after: answer.data.last_id, hasMore: answer.data.has_more });
    return undefined;
  };
  return html`${rows.length ? html`<${Table} label=${label} columns=${columns} rows=${rows} chosen=${chosen} onOpen=${open} />` : html`<p class="empty">Nothing fits these words.</p>`}
    ${hasMore && html`<p class="more"><${Button} onClick=${more}>Older</${Button}></p>`}`;
}

export const Search = ({ label, placeholder }) => html`<div class="filters" role="search"><input type="search" data-filter aria-label=${label} placeholder=${placeholder} value=${route.value.query.q ?? ""}
  onInput=${(event) => setQuery(route.value, { q: event.target.value })} onKeyDown=${(event) => event.key === "Escape" && event.target.blur()} /></div>`;
