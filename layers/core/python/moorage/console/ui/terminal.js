// What a command printed: its colours, and never what it would have a terminal do. The end of what is long, and all of it to save.
import { html, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { saveBlob } from "../api.js";
import { bytes } from "../model/text.js";
import { CHARS_SHOWN, runs } from "../model/ansi.js";
import { Button } from "./parts.js";

const LINES_SHOWN = 400;
const RUNS_SHOWN = 400;

export function Terminal({ text, stream, label }) {
  const box = useRef(null);
  const atEnd = useRef(true);
  const [isWrapped, wrap] = useState(true);
  const shown = useMemo(() => tail(text), [text]);
  const pieces = useMemo(() => runs(shown.text).slice(-RUNS_SHOWN), [shown]);
  useLayoutEffect(() => {
    if (atEnd.current) box.current.scrollTop = box.current.scrollHeight;
  }, [text]);
  const look = () => (atEnd.current = box.current.scrollHeight - box.current.scrollTop - box.current.clientHeight < 24);
  return html`<div class=${`terminal ${stream}`}>
    ${shown.cut > 0 && html`<p class="cut">${bytes(shown.cut)} before this are not shown. <${Button} tone="quiet" icon="download" onClick=${() => saveBlob(new Blob([text]), `${label.replace(/\W+/g, "-")}.txt`)}>Save all ${bytes(text.length)}</${Button}></p>`}
    <pre ref=${box} tabindex="0" role="region" aria-label=${label} class=${isWrapped ? "wrapped" : ""} onScroll=${look} dir="ltr">${pieces.map((piece, key) => (piece.style ? html`<span key=${key} class=${piece.style}>${piece.text}</span>` : piece.text))}</pre>
    <button type="button" class="ghost tiny wrap" aria-pressed=${isWrapped} onClick=${() => wrap(!isWrapped)}>wrap</button>
  </div>`;
}

function tail(text) {
  let start = Math.max(0, text.length - CHARS_SHOWN);
  let at = text.length;
  for (let lines = 0; lines < LINES_SHOWN && at > start; lines += 1) at = text.lastIndexOf("\n", at - 1);
  start = Math.max(start, at + 1 > 0 && at > 0 ? at + 1 : 0);
  return { text: text.slice(start), cut: start };
}
