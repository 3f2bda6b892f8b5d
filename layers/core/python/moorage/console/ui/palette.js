// Ctrl K: any id leads to its page, any word to the pages that have it.
import { html, useEffect, useRef, useState } from "../html.js";
import { palette } from "../state.js";
import { address } from "../router.js";
import { PAGES } from "../pages/all.js";

const KINDS = [
  ["resp_", "runs", "run"],
  ["cntr_", "containers", "container"],
  ["file-", "files", "file"],
  ["skill_", "skills", "skill"],
  ["vs_", "vector_stores", "vector store"],
  ["session_", "sessions", "session"],
  ["agent_", "agents", "agent"],
  ["auto_", "automations", "automation"],
  ["vault_", "vaults", "vault"],
];
// Ids of items carry most of their response's id, but not all of it: the list is asked for it where they are opened.

function found(text) {
  const wanted = text.trim();
  const places = KINDS.filter(([prefix]) => wanted.startsWith(prefix)).map(([, page, what]) => ({ href: address(page, wanted), title: `Open the ${what} ${wanted}` }));
  const words = wanted.toLowerCase();
  const pages = PAGES.filter((page) => !page.isHidden && page.title.toLowerCase().includes(words)).map((page) => ({ href: address(page.id), title: page.title }));
  const search = wanted && !places.length ? [{ href: address("runs", "", { q: wanted }), title: `Runs with “${wanted}”` }] : [];
  return [...places, ...pages, ...search];
}

export function Palette() {
  const box = useRef(null);
  const [text, type] = useState("");
  const [at, move] = useState(0);
  const list = found(text);
  useEffect(() => {
    box.current.showModal();
  }, []);
  const open = (place) => {
    location.hash = place.href;
    box.current.close();
  };
  const press = (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      move((at + (event.key === "ArrowDown" ? 1 : list.length - 1)) % Math.max(1, list.length));
    } else if (event.key === "Enter" && list[at]) {
      event.preventDefault();
      open(list[at]);
    }
  };
  return html`<dialog class="sheet jump" ref=${box} aria-label="Jump to" onClose=${() => (palette.value = false)} onClick=${(event) => event.target === box.current && box.current.close()}>
    <input type="text" aria-label="An id or a page" placeholder="resp_…, cntr_…, file-…, or a page" value=${text} role="combobox" aria-expanded="true"
      aria-controls="places" aria-activedescendant=${list[at] ? `place-${at}` : undefined}
      onInput=${(event) => (type(event.target.value), move(0))} onKeyDown=${press} />
    <ul id="places" role="listbox" aria-label="Places">${list.map(
      (place, index) => html`<li id=${`place-${index}`} key=${place.href} role="option" aria-selected=${index === at} onClick=${() => open(place)}>${place.title}</li>`,
    )}</ul></dialog>`;
}
