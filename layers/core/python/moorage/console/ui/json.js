// A value as a tree that opens where one looks.
import { html, useState } from "../html.js";
import { printable } from "../model/ansi.js";

const ENTRIES_SHOWN = 100;
const CHARS_SHOWN = 2000;

export function Json({ value, name = null, depth = 1 }) {
  const [isOpen, open] = useState(depth > 0);
  const [most, more] = useState(ENTRIES_SHOWN);
  const label = name === null ? null : html`<span class="json-key">${name}</span>`;
  if (value === null || typeof value !== "object") return html`<div class="json-leaf">${label}${leaf(value)}</div>`;
  const entries = Object.entries(value);
  const isList = Array.isArray(value);
  if (!entries.length) return html`<div class="json-leaf">${label}${isList ? "[]" : "{}"}</div>`;
  return html`<div class="json">
    <button type="button" class="json-open" aria-expanded=${isOpen} onClick=${() => open(!isOpen)}>${isOpen ? "▾" : "▸"} ${label}<span class="muted">${isList ? `[${entries.length}]` : `{${entries.length}}`}</span></button>
    ${isOpen && html`<div class="json-in">${entries.slice(0, most).map(([key, inner]) => html`<${Json} key=${key} name=${key} value=${inner} depth=${depth - 1} />`)}
      ${entries.length > most && html`<button type="button" class="button quiet" onClick=${() => more(most + 1000)}>${entries.length - most} more</button>`}</div>`}
  </div>`;
}

function leaf(value) {
  if (typeof value !== "string") return html`<span class="json-word">${String(value)}</span>`;
  const text = printable(value);
  return html`<span class="json-text" dir="auto">"${text.length > CHARS_SHOWN ? `${text.slice(0, CHARS_SHOWN)}… (${text.length} characters)` : text}"</span>`;
}
