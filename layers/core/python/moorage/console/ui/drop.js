// Files by hand: chosen, or dropped, with the folders that they lie in.
import { html, useState } from "../html.js";
import { isReadOnly } from "../state.js";

const ENTRIES_MAX = 10_000;

// `take([{ path, file }])` gets what is dropped anywhere on it; a key that only reads drops nothing.
export function Drop({ take, label, children, tag = "div", class: name = "", ...more }) {
  const [isOver, hover] = useState(false);
  const over = (event) => {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    if (!isReadOnly()) hover(true);
  };
  const drop = async (event) => {
    event.preventDefault();
    hover(false);
    if (isReadOnly()) return;
    const files = await dropped(event.dataTransfer);
    if (files.length) take(files);
  };
  return html`<${tag} ...${more} class=${`drop ${name} ${isOver ? "over" : ""}`} data-label=${label} onDragOver=${over} onDragLeave=${(event) => event.currentTarget.contains(event.relatedTarget) || hover(false)} onDrop=${drop}>${children}</${tag}>`;
}

// A folder's entries can be asked for as long as the drop is handled, and its files whenever one likes.
async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...transfer.files].map((file) => ({ path: file.name, file }));
  return (await Promise.all(entries.map(within))).flat();
}

async function within(entry) {
  if (entry.isFile) return [{ path: entry.fullPath.replace(/^\//, ""), file: await new Promise((resolve, reject) => entry.file(resolve, reject)) }];
  const reader = entry.createReader();
  const found = [];
  let part;
  do {
    part = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    found.push(...part);
  } while (part.length && found.length < ENTRIES_MAX);
  return (await Promise.all(found.map(within))).flat();
}

// The browser's own window to choose files in, or with `webkitdirectory` a folder.
export function choose(take, options = { multiple: true }) {
  const input = Object.assign(document.createElement("input"), { type: "file", ...options });
  input.onchange = () => take([...input.files].map((file) => ({ path: file.webkitRelativePath || file.name, file })));
  input.click();
}
