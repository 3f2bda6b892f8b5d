// What a command printed: its colours, and never what it would have a terminal do. The end of what is long, and all of it to save.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { saveBlob } from "../api.js";
import { CHARS_SHOWN, printable, runs } from "../model/ansi.js";
import { found } from "../model/find.js";
import { bytes, count, plural } from "../model/text.js";
import { Button, copy } from "./parts.js";

const LINES_SHOWN = 400;
const RUNS_SHOWN = 400;

export function Terminal({ text, stream, label, fromStart = false }) {
  const box = useRef(null);
  const atEnd = useRef(!fromStart);
  const [isWrapped, wrap] = useState(true);
  const [words, find] = useState(null); // null while nobody looks for any
  const shown = useMemo(() => (fromStart ? { text: text.slice(0, CHARS_SHOWN), cut: 0 } : tail(text)), [text]);
  const pieces = useMemo(() => bounded(runs(shown.text)), [shown]);
  useLayoutEffect(() => {
    if (atEnd.current) box.current.scrollTop = box.current.scrollHeight;
  }, [text]);
  // What was scrolled may be gone from the page by the time it is told.
  const look = ({ currentTarget: element }) => (atEnd.current = element.scrollHeight - element.scrollTop - element.clientHeight < 24);
  return html`<div class=${`terminal ${stream}`}>
    ${shown.cut > 0 && html`<p class="cut">${bytes(shown.cut)} before this are not shown. <${Button} tone="quiet" icon="download" onClick=${() => saveBlob(new Blob([text]), `${label.replace(/\W+/g, "-")}.txt`)}>Save all ${bytes(text.length)}</${Button}></p>`}
    <pre ref=${box} tabindex="0" role="group" aria-label=${label} class=${isWrapped ? "wrapped" : ""} onScroll=${look} dir="ltr">${pieces.map((piece, key) => (piece.style ? html`<span key=${key} class=${piece.style}>${piece.text}</span>` : piece.text))}</pre>
    <div class="tools"><button type="button" class="ghost tiny" aria-expanded=${words !== null} aria-label=${`Find in: ${label}`} onClick=${() => find(words === null ? "" : null)}>find</button>
      <button type="button" class="ghost tiny" aria-label=${`Copy raw: ${label}`} title="Copy as it was printed, with its codes of colours" onClick=${() => copy(text)}>copy raw</button>
      <button type="button" class="ghost tiny" aria-pressed=${isWrapped} onClick=${() => wrap(!isWrapped)}>wrap</button></div>
    ${words !== null && html`<${Found} text=${text} words=${words} label=${label} onWords=${find} />`}
  </div>`;
}

// All of it is looked through, also what is not shown.
function Found({ text, words, label, onWords }) {
  const hits = useMemo(() => (words ? found(text, words) : null), [text, words]);
  const field = useRef(null);
  useEffect(() => field.current.focus(), []);
  return html`<div class="found" role="search"><div class="line"><input type="search" ref=${field} aria-label=${`Words to find in: ${label}`} placeholder="words…" value=${words} onInput=${(event) => onWords(event.target.value)} onKeyDown=${(event) => event.key === "Escape" && (event.stopPropagation(), onWords(null))} />
      <span role="status" class="muted number">${hits && (hits.count ? `${plural(hits.count, "line")}${hits.count > hits.lines.length ? `, the first ${count(hits.lines.length)}` : ""}` : "No line has it.")}</span></div>
    ${hits?.count > 0 && html`<ol class="hits" tabindex="0" aria-label="Lines with these words">${hits.lines.map((line) => html`<li key=${line.number}><span class="number muted">${line.number}</span><code dir="ltr">${printable(line.before)}<mark>${printable(line.hit)}</mark>${printable(line.after)}</code></li>`)}</ol>`}</div>`;
}

// What paints each letter in a colour of its own is shown without colours.
const bounded = (pieces) => (pieces.length <= RUNS_SHOWN ? pieces : [{ text: pieces.map((piece) => piece.text).join(""), style: "" }]);

function tail(text) {
  let start = Math.max(0, text.length - CHARS_SHOWN);
  let at = text.length;
  for (let lines = 0; lines < LINES_SHOWN && at > start; lines += 1) at = text.lastIndexOf("\n", at - 1);
  start = Math.max(start, at + 1 > 0 && at > 0 ? at + 1 : 0);
  return { text: text.slice(start), cut: start };
}
