// The address holds all state: #/runs/resp_1?at=412. Pages read it from `route`, and change it here.

export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [page = "", id = "", ...rest] = path.split("/").map(decoded);
  return { page: page || "runs", id, rest, query: Object.fromEntries(new URLSearchParams(query)) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function address(page, id = "", query = {}) {
  const said = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "" && value != null)).toString();
  return `#/${page}${id ? `/${encodeURIComponent(id)}` : ""}${said ? `?${said}` : ""}`;
}

export const go = (page, id, query) => (location.hash = address(page, id, query));

// The same page with another query; without a step in the history unless it is one for the reader. What is dragged or replayed changes it with
// each frame, and browsers refuse to have their address changed that often: pages hear of it at once, and the address follows.
export function setQuery(route, changed, { isStep = false } = {}) {
  if (location.hash !== here) return; // Somebody is on the way elsewhere: what is replayed does not call them back.
  const next = address(route.page, route.id, { ...route.query, ...changed });
  if (next === (pending ?? location.hash)) return;
  if (isStep) {
    location.hash = next;
    return;
  }
  pending = next;
  window.dispatchEvent(new CustomEvent("address", { detail: next }));
  if (timer) return;
  write();
  timer = setTimeout(() => ((timer = 0), write()), ADDRESS_MS);
}

const ADDRESS_MS = 250;
let here = location.hash;
let pending = null;
let timer = 0;

function write() {
  if (pending !== null && location.hash === here) {
    history.replaceState(null, "", pending);
    here = location.hash;
  }
  pending = null;
}

// Whoever goes elsewhere leaves the place that was still to be written down.
window.addEventListener("hashchange", () => ((pending = null), (here = location.hash)));
