// What a run came to, before how it came to it: its last message, and the files that it made.
import { html, useState } from "../html.js";
import { plural } from "../model/text.js";
import { madeBy } from "../model/outcome.js";
import { Said } from "./cards.js";
import { FileLink } from "./file_link.js";

const FILES_SHOWN = 6;

export function Answer({ run, answer }) {
  const [isWhole, open] = useState(false);
  const made = madeBy(run, answer);
  const shown = isWhole ? made : made.slice(0, FILES_SHOWN);
  return html`<section class="answer" aria-label="Answer" tabindex="0"><h2>Answer</h2>
    <${Said} who="assistant" content=${answer.content} />
    ${shown.length > 0 && html`<p class="cited">${shown.map((file) => html`<${FileLink} key=${file.id} containerId=${run.containerId} fileId=${file.id} name=${file.path.split("/").at(-1)} />`)}
      ${made.length > shown.length && html`<button type="button" class="chip" onClick=${() => open(true)}>${plural(made.length - shown.length, "more file")}</button>`}</p>`}
  </section>`;
}
