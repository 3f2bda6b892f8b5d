// What a container has been: the versions of its files, and the sandboxes that it has had.
import { html, useState } from "../html.js";
import { get, saveWhole } from "../api.js";
import { setQuery } from "../router.js";
import { notify, route } from "../state.js";
import { useData } from "../ui/data.js";
import { Ago, Button, Name, Problem, Skeleton, Status } from "../ui/parts.js";
import { bytes, clock, duration, plural } from "../model/text.js";

const PAGE = 50;

// The newest of a list, which are asked for again, and older ones behind them when somebody wants them.
function useNewest(path) {
  const head = useData((signal) => get(path, { limit: PAGE }, signal), [path], { every: 5000 });
  const [older, add] = useState({ rows: [], hasMore: null });
  const fresh = new Set(head.data?.data.map((row) => row.id));
  const rows = [...(head.data?.data ?? []), ...older.rows.filter((row) => !fresh.has(row.id))];
  const more = async () => {
    const answer = await get(path, { limit: PAGE, after: rows.at(-1).id });
    if (!answer.ok) return notify(answer.message, "bad");
    return add({ rows: [...older.rows, ...answer.data.data], hasMore: answer.data.has_more });
  };
  return { ...head, rows, more: (older.hasMore ?? head.data?.has_more) ? more : null };
}

const More = ({ list }) => list.more && html`<p class="more"><${Button} onClick=${list.more}>Older</${Button}></p>`;

const MARKS = { added: "+", changed: "~", removed: "−" };

export function Versions({ container }) {
  const list = useNewest(`containers/${container.id}/versions`);
  if (list.isLoading) return html`<${Skeleton} />`;
  if (list.problem && !list.data) return html`<${Problem} message=${list.problem} onAgain=${list.reload} />`;
  if (!list.rows.length) return html`<p class="empty">Its files have not changed yet. Whenever a command or a person has changed some, a version stands here.</p>`;
  return html`<p class="muted pad">A run is forked from any of its events with the files as they were: <em>Fork</em> on its page.</p>
    <div class="scroll" tabindex="0" role="region" aria-label="Versions of the files"><table class="small"><thead><tr><th scope="col">When</th><th scope="col">Changed</th><th scope="col" class="r">Files</th><th scope="col" class="r">Size</th><th scope="col"><span class="unseen">Actions</span></th></tr></thead>
    <tbody>${list.rows.map((each) => html`<tr key=${each.id}><td><${Ago} at=${each.at / 1000} /><small class="muted number">${clock(each.at)}</small></td>
      <td>${each.changes.map((change) => html`<div key=${change.path}><span aria-hidden="true">${MARKS[change.what]} </span><span class="unseen">${change.what}</span> <${Name}>${change.path.replace("/mnt/data/", "")}</${Name}></div>`)}${each.change_count > each.changes.length && html`<div class="muted">and ${each.change_count - each.changes.length} more</div>`}</td>
      <td class="r number">${each.files}</td><td class="r number">${bytes(each.bytes)}</td>
      <td class="r"><${Button} tone="quiet" label=${`Look at the files as of ${clock(each.at)}`} onClick=${() => setQuery(route.value, { tab: "files", then: each.at }, { isStep: true })}>Look</${Button}
        ><${Button} tone="quiet" icon="download" label=${`Zip of the files as of ${clock(each.at)}`} onClick=${() => saveWhole(`archives/${container.id}?at=${each.at}`, `${container.id}-${each.at}.zip`)}>Zip</${Button}></td></tr>`)}</tbody></table></div><${More} list=${list} />`;
}

const ENDS = { idle: "nobody used it", lost: "it was lost", failed: "it never came to run", limit: "its time was over" };

export function Sandboxes({ container }) {
  const list = useNewest(`containers/${container.id}/sandboxes`);
  if (list.isLoading) return html`<${Skeleton} />`;
  if (list.problem && !list.data) return html`<${Problem} message=${list.problem} onAgain=${list.reload} />`;
  if (!list.rows.length) return html`<p class="empty">It has had no sandbox yet: the first command, or a terminal, starts one.</p>`;
  return html`<p class="muted pad">A sandbox that ended comes back with the saved files when a command or a terminal needs it; its processes do not.</p>
    <div class="scroll" tabindex="0" role="region" aria-label="Sandboxes"><table class="small"><thead><tr><th scope="col">Sandbox</th><th scope="col">Status</th><th scope="col">Ordered</th><th scope="col" class="r">Start took</th><th scope="col" class="r">Lived</th><th scope="col">Ended because</th></tr></thead>
    <tbody>${list.rows.map((each) => html`<tr key=${each.id}><td class="number">${each.id.replace("sandbox_", "")}</td><td><${Status} status=${each.status} /></td>
      <td>${each.ordered_at && html`<${Ago} at=${each.ordered_at / 1000} />`}</td><td class="r number">${each.ordered_at && each.started_at ? duration(each.started_at - each.ordered_at) : ""}</td>
      <td class="r number">${each.started_at ? duration((each.ended_at ?? Date.now()) - each.started_at) : ""}</td><td>${ENDS[each.end] ?? ""}${each.refusal && html`<${Name}>${each.refusal}</${Name}>`}</td></tr>`)}</tbody></table></div><${More} list=${list} />`;
}
