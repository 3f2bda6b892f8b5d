// What the keys do.
import { html, useEffect, useRef } from "../html.js";
import { help } from "../state.js";
import { PAGES } from "../pages/all.js";
import { META } from "./parts.js";

const KEYS = [
  [`${META} K`, "jump to an id or a page"],
  ["/", "filter"],
  ["j k", "next, previous row"],
  ["Enter", "open"],
  ["Esc", "back"],
  ["← →", "in a run: one event back, forward; with Shift one step"],
  ["Space", "in a run: replay, stop"],
  ["[ ]", "at the cursor of a run: a range begins, ends; so does dragging with Shift"],
  ["f", "in a run: follow it live"],
  ["?", "this"],
];

export function Help() {
  const box = useRef(null);
  useEffect(() => {
    box.current.showModal();
  }, []);
  const pages = PAGES.filter((page) => page.letter).map((page) => [`g ${page.letter}`, page.title.toLowerCase()]);
  return html`<dialog class="sheet" ref=${box} aria-label="Keys" onClose=${() => (help.value = false)} onClick=${(event) => event.target === box.current && box.current.close()}>
    <h2>Keys</h2><dl class="keys">${[...KEYS, ...pages].map(([keys, what]) => html`<div key=${keys}><dt>${keys.split(" ").map((each) => html`<kbd>${each}</kbd>`)}</dt><dd>${what}</dd></div>`)}</dl>
    <form method="dialog"><button class="button">Close</button></form></dialog>`;
}
