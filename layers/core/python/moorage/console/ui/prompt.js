// The prompt of a model step as it was sent: what came from the cache is shaded, and each part opens.
import { html, useMemo, useState } from "../html.js";
import { get } from "../api.js";
import { count, plural } from "../model/text.js";
import { partsOf } from "../model/prompt.js";
import { useData } from "./data.js";
import { Json } from "./json.js";
import { Button, Problem, Skeleton } from "./parts.js";
import { RawButton } from "./cards.js";

const PARTS_SHOWN = 40;
const CHARS_SHOWN = 240;

export function Sent({ runId, step }) {
  const found = useData((signal) => get(`responses/${encodeURIComponent(runId)}/steps/${encodeURIComponent(step.id)}/prompt`, {}, signal), [runId, step.id, step.ended_at]);
  const [most, more] = useState(PARTS_SHOWN);
  const shown = useMemo(() => found.data && partsOf(found.data), [found.data]);
  if (found.isLoading) return html`<${Skeleton} rows=${3} />`;
  if (!shown) return html`<${Problem} message=${found.problem} onAgain=${found.reload} />`;
  const { parts, counted, cached } = shown;
  const [head, ...items] = parts;
  const hidden = Math.max(0, items.length - most);
  return html`<p class="line"><span class="muted number">${count(counted)} tokens to ${found.data.model}${cached ? `, ${count(cached)} of them from the cache` : ""}</span><${RawButton} value=${found.data} name="the prompt" /></p>
    <ol class="parts" aria-label="Parts of the prompt"><${Part} part=${head} />
      ${hidden > 0 && html`<li><${Button} tone="quiet" onClick=${() => more(most + PARTS_SHOWN)}>${plural(hidden, "earlier part")}</${Button}></li>`}
      ${items.slice(hidden).map((part) => html`<${Part} key=${part.id} part=${part} />`)}</ol>`;
}

function Part({ part }) {
  const [isOpen, open] = useState(false);
  return html`<li class=${`sent-part ${part.isCached ? "cached" : ""}`}><button type="button" class="sent-head" aria-expanded=${isOpen} onClick=${() => open(!isOpen)}><b>${part.who}</b>
      ${part.isCached && html`<span class="chip">cached</span>`}<span class="muted number">~${count(part.tokens)}</span></button>
    ${isOpen ? html`<${Json} value=${part.value} depth=${2} />` : part.text && html`<p class="sent-text" dir="auto">${part.text.slice(0, CHARS_SHOWN)}${part.text.length > CHARS_SHOWN ? " …" : ""}</p>`}</li>`;
}
