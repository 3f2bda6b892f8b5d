// A new response from the event under the cursor, with the files as they were then.
import { html, useEffect, useRef, useState } from "../html.js";
import { post } from "../api.js";
import { go } from "../router.js";
import { notify } from "../state.js";
import { Button } from "./parts.js";

export function Fork({ run, cursor, isLive }) {
  const [isOpen, open] = useState(false);
  return html`<${Button} icon="fork" onClick=${() => open(true)}>Fork from ${isLive ? "the end" : "here"}</${Button}>${isOpen && html`<${Asking} run=${run} cursor=${isLive ? null : cursor} close=${() => open(false)} />`}`;
}

function Asking({ run, cursor, close }) {
  const box = useRef(null);
  const [text, type] = useState("");
  useEffect(() => {
    box.current.showModal();
  }, []);
  const fork = async () => {
    const answer = await post(`responses/${encodeURIComponent(run.id)}/fork`, { background: true, ...(cursor === null ? {} : { at: cursor }), ...(text.trim() ? { input: text } : {}) });
    if (!answer.ok) return notify(answer.status === 404 ? "This deployment is of a version before forks, or the run is gone." : answer.message, "bad");
    const { notice } = answer.data.forked_from?.container ?? {};
    if (notice) notify(notice);
    box.current.close();
    return go("runs", answer.data.id);
  };
  return html`<dialog class="sheet" ref=${box} aria-label="Fork" onClose=${close}>
    <h2>Fork from ${cursor === null ? "the end" : `event ${cursor}`}</h2>
    <p class="muted">A new response begins at the end of the round before, in a container with the files as they were. This one stays as it is.</p>
    <textarea rows="4" aria-label="Added input" placeholder="What to say there (nothing: go on as before)" value=${text} onInput=${(event) => type(event.target.value)}></textarea>
    <p class="line"><${Button} tone="primary" onClick=${fork}>Fork</${Button}><${Button} onClick=${() => box.current.close()}>Leave it</${Button}></p></dialog>`;
}
