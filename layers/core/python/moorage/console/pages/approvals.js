// Calls that wait for a person's word. The whole of what is asked stands here: nobody decides on the beginning of a command.
import { html, useState } from "../html.js";
import { get, post } from "../api.js";
import { address } from "../router.js";
import { notify, now } from "../state.js";
import { useData } from "../ui/data.js";
import { Acting, Ago, Button, Empty, Head, Id, Missing, Problem, Skeleton } from "../ui/parts.js";
import { Item } from "../ui/cards.js";
import { duration } from "../model/text.js";

const LOOK_MS = 2000;

export function Approvals() {
  const list = useData((signal) => get("approvals", { limit: 100, order: "asc" }, signal), [], { every: LOOK_MS });
  if (list.isLoading) return html`<${Head} title="Approvals" /><${Skeleton} rows=${3} />`;
  if (list.status === 404) return html`<${Missing} title="Approvals" what="This deployment cannot hold calls for approval" how="Calls of hosted tools that wait for a person come with a later version. Calls of remote MCP servers can be asked about today: require_approval of the tool, answered by your program." />`;
  if (list.problem && !list.data) return html`<${Head} title="Approvals" /><${Problem} message=${list.problem} onAgain=${list.reload} />`;
  const waiting = list.data.data;
  return html`<${Head} title="Approvals" note="A response stands still without a process until each of its calls is decided. Denying tells the model why." />
    ${waiting.length ? waiting.map((each) => html`<${Asked} key=${each.id} asked=${each} done=${list.reload} />`) : html`<${Empty} title="Nothing waits for you"><p>A request says which of its calls wait: <code>require_approval</code> of its tools.</p></${Empty}>`}`;
}

function Asked({ asked, done }) {
  const [reason, type] = useState("");
  const decide = async (approve) => {
    const answer = await post(`responses/${encodeURIComponent(asked.response_id)}/approvals/${encodeURIComponent(asked.id)}`, { approve, ...(reason ? { reason } : {}) });
    notify(answer.ok ? (approve ? "It runs." : "It does not run, and the model is told.") : answer.message, answer.ok ? "note" : "bad");
    done();
  };
  return html`<article class="asked-card" aria-label=${`Approval ${asked.id}`}>
    <header class="line"><span class="status warn">${asked.status}</span><span class="muted">in</span><${Id} id=${asked.response_id} href=${address("runs", asked.response_id)} /><${Ago} at=${asked.created_at} />
      ${asked.expires_at && html`<span class="muted">${asked.on_timeout ?? "denied"} in ${duration(asked.expires_at * 1000 - now.value)}</span>`}</header>
    ${asked.call?.type && html`<${Item} item=${asked.call} mark=${{ commands: [] }} isDone=${true} />`}
    <${Acting}><div class="line"><input type="text" aria-label=${`Reason, for ${asked.id}`} placeholder="why (the model reads it if you deny)" value=${reason} onInput=${(event) => type(event.target.value)} />
      <${Button} icon="ok" tone="primary" onClick=${() => decide(true)}>Approve</${Button}><${Button} icon="fail" tone="danger" onClick=${() => decide(false)}>Deny</${Button}></div></${Acting}></article>`;
}
