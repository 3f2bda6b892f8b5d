// The API under /v1. An answer is a value, also one that is a refusal: { ok, status, data, message, code }.
import { key, leave, link, notify } from "./state.js";

export const BASE = new URL("../v1/", document.baseURI).href;

const PART_BYTES = 4 * 1024 * 1024;

export async function call(method, path, { body, query, form, signal, secret = key.value } = {}) {
  const url = new URL(path.replace(/^\//, ""), BASE);
  for (const [name, value] of Object.entries(query ?? {})) if (value !== "" && value != null) url.searchParams.set(name, value);
  const headers = { authorization: `Bearer ${secret}` };
  if (body !== undefined) headers["content-type"] = "application/json";
  let answer;
  try {
    answer = await fetch(url, { method, headers, body: form ?? (body === undefined ? undefined : JSON.stringify(body)), signal, cache: "no-store" });
  } catch (error) {
    if (signal?.aborted) return { ok: false, status: 0, isAborted: true, message: "" };
    link.value = "lost";
    return { ok: false, status: 0, message: "The API cannot be reached. It is asked again." };
  }
  link.value = "ok";
  const data = await answer.json().catch(() => null);
  if (signal?.aborted) return { ok: false, status: 0, isAborted: true, message: "" };
  if (answer.ok && data === null && answer.status !== 204) return { ok: false, status: 0, message: "The answer of the API broke off." };
  if (answer.ok) return { ok: true, status: answer.status, data };
  if (answer.status === 401 && secret === key.value) {
    leave();
    notify("This key does not open the console any more.", "bad");
  }
  const said = data?.error;
  return { ok: false, status: answer.status, data, code: said?.code ?? null, message: said?.message ?? `The API answered ${answer.status}.` };
}

export const get = (path, query, signal) => call("GET", path, { query, signal });
export const post = (path, body) => call("POST", path, { body });
export const remove = (path) => call("DELETE", path);

// Every entry of a list, page by page, as far as `most` goes.
export async function all(path, query = {}, { most = 1000, signal } = {}) {
  const entries = [];
  let after = null;
  do {
    const page = await get(path, { limit: 100, ...query, after }, signal);
    if (!page.ok) return page;
    entries.push(...page.data.data);
    after = page.data.has_more ? page.data.last_id : null;
  } while (after && entries.length < most);
  return { ok: true, status: 200, data: entries, hasMore: Boolean(after) };
}

// The answers of many requests, in order, so many of them at once.
export async function sideBySide(things, ask, most) {
  const answers = new Array(things.length);
  let next = 0;
  const go = async () => {
    while (next < things.length) {
      const at = next++;
      answers[at] = await ask(things[at]);
    }
  };
  await Promise.all(Array.from({ length: most }, go));
  return answers;
}

// A file's bytes. Never shown as a document of this origin: as an image, as text, or saved.
// It is asked for part by part: where all of it would be a redirection to a store, which this page may not follow, a part is an answer.
export async function content(path, { bytesMax = Infinity } = {}) {
  const parts = [];
  let had = 0;
  let size = bytesMax;
  try {
    while (had < size) {
      const range = `bytes=${had}-${Math.min(size, had + PART_BYTES) - 1}`;
      const headers = { authorization: `Bearer ${key.value}`, accept: "application/octet-stream", range };
      const answer = await fetch(new URL(path, BASE), { headers, cache: "no-store" });
      if (answer.status === 416) break;
      if (!answer.ok) return { ok: false, status: answer.status, message: `The API answered ${answer.status}.` };
      const part = await answer.blob();
      parts.push(part);
      had += part.size;
      if (answer.status !== 206 || !part.size) break;
      size = Math.min(bytesMax, Number(answer.headers.get("content-range")?.split("/")[1]) || 0);
    }
    return { ok: true, status: 200, data: new Blob(parts) };
  } catch {
    return { ok: false, status: 0, message: "The API cannot be reached." };
  }
}

// What is made as it is read, and so has no parts.
export async function saveWhole(path, name) {
  try {
    const answer = await fetch(new URL(path, BASE), { headers: { authorization: `Bearer ${key.value}` }, cache: "no-store" });
    if (answer.ok) return saveBlob(await answer.blob(), name);
    const said = await answer.json().catch(() => null);
    return notify(said?.error?.message ?? `The API answered ${answer.status}.`, "bad");
  } catch {
    return notify("It broke off before it was whole.", "bad");
  }
}

export async function save(path, name) {
  const answer = await content(path);
  if (!answer.ok) return notify(answer.message, "bad");
  saveBlob(answer.data, name);
}

export function saveBlob(blob, name) {
  const url = URL.createObjectURL(new Blob([blob], { type: "application/octet-stream" }));
  const anchor = Object.assign(document.createElement("a"), { href: url, download: name });
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
