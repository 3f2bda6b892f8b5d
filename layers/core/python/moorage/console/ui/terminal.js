// What a command printed: its colours, and never what it would have a terminal do. The end of what is long, and all of it to save.
import { html, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { saveBlob } from "../api.js";
import { bytes } from "../model/text.js";
import { CHARS_SHOWN, runs } from "../model/ansi.js";
import { Button } from "./parts.js";

const LINES_SHOWN = 400;
const RUNS_SHOWN = 400;

export function Terminal({ text, stream, label, fromStart = false }) {
  const box = useRef(null);
  const atEnd = useRef(!fromStart);
  const [isWrapped, wrap] = useState(true);
  const shown = useMemo(() => (fromStart ? { text: text.slice(0, CHARS_SHOWN), cut: 0 } : tail(text)), [text]);
  const pieces = useMemo(() => bounded(runs(shown.text)), [shown]);
  useLayoutEffect(() => {
    if (atEnd.current) box.current.scrollTop = box.current.scrollHeight;
  }, [text]);
  const look = () => (atEnd.current = box.current.scrollHeight - box.current.scrollTop - box.current.clientHeight < 24);
  return html`<div class=${`terminal ${stream}`}>
    ${shown.cut > 0 && html`<p class="cut">${bytes(shown.cut)} before this are not shown. <${Button} tone="quiet" icon="download" onClick=${() => saveBlob(new Blob([text]), `${label.replace(/\W+/g, "-")}.txt`)}>Save all ${bytes(text.length)}</${Button}></p>`}
    <pre ref=${box} tabindex="0" role="group" aria-label=${label} class=${isWrapped ? "wrapped" : ""} onScroll=${look} dir="ltr">${pieces.map((piece, key) => (piece.style ? html`<span key=${key} class=${piece.style}>${piece.text}</span>` : piece.text))}</pre>
    <button type="button" class="ghost tiny wrap" aria-pressed=${isWrapped} onClick=${() => wrap(!isWrapped)}>wrap</button>
  </div>`;
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
