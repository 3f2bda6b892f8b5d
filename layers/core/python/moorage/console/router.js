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

// The same page with another query; without a step in the history unless it is one for the reader.
export function setQuery(route, changed, { isStep = false } = {}) {
  const next = address(route.page, route.id, { ...route.query, ...changed });
  if (next === location.hash) return;
  if (isStep) {
    location.hash = next;
    return;
  }
  history.replaceState(null, "", next);
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}
