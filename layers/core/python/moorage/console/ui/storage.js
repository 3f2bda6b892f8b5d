// What a tenant stores, of what it may store.
import { html } from "../html.js";
import { get } from "../api.js";
import { useData } from "./data.js";
import { bytes } from "../model/text.js";

const LOOK_MS = 30_000;
const FULL = 0.9;

export const useMe = () => useData((signal) => get("me", {}, signal), [], { every: LOOK_MS });

export const isTight = (storage) => storage.used_bytes > FULL * storage.limit_bytes;

export function Storage({ storage }) {
  if (!storage) return null;
  const parts = [["files", storage.file_bytes], ["containers", storage.container_bytes], ["vector stores", storage.vector_store_bytes]];
  return html`<section class="storage" aria-label="Storage"><h2>Stored</h2><p class="line"><b class="number">${bytes(storage.used_bytes)}</b><span class="muted">of <span class="number">${bytes(storage.limit_bytes)}</span></span>
      <meter min="0" max=${storage.limit_bytes} high=${FULL * storage.limit_bytes} value=${storage.used_bytes} aria-label="Stored, of what may be"></meter>
      ${parts.map(([name, value]) => html`<span key=${name} class="muted">${name} <span class="number">${bytes(value)}</span></span>`)}</p>
    ${isTight(storage) && html`<p class="banner"><b>Little room is left.</b> Uploads and files of containers are refused where there is none: delete some of them, or the operator raises <code>MOORAGE_STORED_BYTES_MAX</code>.</p>`}</section>`;
}
