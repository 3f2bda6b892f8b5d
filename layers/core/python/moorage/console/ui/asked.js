// A call that waits for a person's word: the whole of it, and the two answers.
import { html, useState } from "../html.js";
import { post } from "../api.js";
import { address } from "../router.js";
import { notify, now } from "../state.js";
import { duration } from "../model/text.js";
import { Item } from "./cards.js";
import { Acting, Ago, Button, Id } from "./parts.js";

// `isHere` where it stands on the page of its run.
export function Asked({ asked, done, isHere = false }) {
  const [reason, type] = useState("");
  const decide = async (approve) => {
    const answer = await post(`responses/${encodeURIComponent(asked.response_id)}/approvals/${encodeURIComponent(asked.id)}`, { approve, ...(reason ? { reason } : {}) });
    notify(answer.ok ? (approve ? "It runs." : "It does not run, and the model is told.") : answer.message, answer.ok ? "note" : "bad");
    if (answer.ok) done();
  };
  return html`<article class="asked-card" aria-label=${`Approval ${asked.id}`}>
    <h2 class="unseen">A call that waits</h2><header class="line"><span class="status warn">${asked.status === "waiting" ? "Waiting for approval" : asked.status}</span>${!isHere && html`<span class="muted">in</span><${Id} id=${asked.response_id} href=${address("runs", asked.response_id)} />`}<${Ago} at=${asked.created_at} />
      ${asked.expires_at && html`<span class="muted">${asked.on_timeout ?? "denied"} in ${duration(asked.expires_at * 1000 - now.value)}</span>`}</header>
    ${asked.call?.type && html`<${Item} item=${asked.call} mark=${{ commands: [] }} isDone=${true} />`}
    <${Acting}><div class="line"><input type="text" aria-label=${`Reason, for ${asked.id}`} placeholder="why (the model reads it if you deny)" value=${reason} onInput=${(event) => type(event.target.value)} />
      <${Button} icon="ok" tone="primary" onClick=${() => decide(true)}>Approve</${Button}><${Button} icon="fail" tone="danger" onClick=${() => decide(false)}>Deny</${Button}></div></${Acting}></article>`;
}
