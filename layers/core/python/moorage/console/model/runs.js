// What the list of runs is asked for, and what a search leaves of it. No DOM here.

// The least duration that this share of them did not exceed (nearest rank); null of none.
export function quantile(durations, share) {
  const sorted = [...durations].sort((one, other) => one - other);
  return sorted.length ? sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] : null;
}

export const STATUSES = ["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"];
const DATES = { since: "created_after", until: "created_before" };
const FIELDS = ["model", "container", "key", "conversation"];

// "reports model:demo metadata:team=docs" → the API's filters, and words to look for in what came.
export function understood(text) {
  const filters = {};
  const words = [];
  for (const word of text.split(/\s+/).filter(Boolean)) {
    const [name, ...rest] = word.split(":");
    const value = rest.join(":");
    if (value && FIELDS.includes(name)) filters[name] = value;
    else if (DATES[name] && Date.parse(value)) filters[DATES[name]] = Math.floor(Date.parse(value) / 1000);
    else if (value && name === "metadata" && value.includes("=")) {
      const [field, ...parts] = value.split("=");
      filters[`metadata[${field}]`] = parts.join("=");
    } else words.push(word.toLowerCase());
  }
  return { filters, words };
}

export const matches = (row, words) => {
  const text = `${row.id} ${row.input_preview} ${row.output_preview ?? ""} ${row.model} ${row.error?.message ?? ""} ${row.container_id ?? ""} ${Object.values(row.metadata).join(" ")}`.toLowerCase();
  return words.every((word) => text.includes(word));
};

// A newer first page over what is known: rows change in place, new ones come first, or with the oldest first last.
export function merged(known, page, isOldestFirst = false) {
  const fresh = new Map(page.map((row) => [row.id, row]));
  const kept = known.filter((row) => !fresh.has(row.id));
  const edge = page.at(-1)?.created_at ?? 0;
  const isBeyond = (row) => (isOldestFirst ? row.created_at > edge : row.created_at < edge);
  // What would stand on the page and does not was deleted, or does not fit the filter any more.
  return [...page, ...kept.filter((row) => isBeyond(row) || (row.created_at === edge && page.length >= 50))];
}

// What runs and is older than all that is listed comes first: nobody looks for it at the end.
export function withOlder(known, running) {
  const listed = new Set(known.map((row) => row.id));
  const older = running.filter((row) => !listed.has(row.id) && row.created_at <= (known.at(-1)?.created_at ?? Infinity));
  return [...older, ...known];
}

// The turns of a conversation, or of a chain of responses, stand behind the latest of them. Whose thread is opened shows them below it.
export function threads(rows, opened) {
  const threadOf = new Map();
  const turns = new Map();
  for (const row of rows.toReversed()) threadOf.set(row.id, row.conversation?.id ?? threadOf.get(row.previous_response_id) ?? row.id);
  for (const row of rows) turns.set(threadOf.get(row.id), [...(turns.get(threadOf.get(row.id)) ?? []), row]);
  return [...turns].flatMap(([id, [latest, ...earlier]]) => {
    const isOpen = opened.has(id);
    return [{ row: latest, thread: id, earlier: earlier.length, isOpen }, ...(isOpen ? earlier.map((row) => ({ row, isTurn: true })) : [])];
  });
}

export const isRunning = (row) => row.status === "queued" || row.status === "in_progress";

export const calls = (row) => Object.values(row.tool_calls ?? {}).reduce((sum, each) => sum + each, 0);

export const trouble = (row) => row.error?.message ?? (row.status === "incomplete" && row.incomplete_details ? `ended early: ${row.incomplete_details.reason}` : "");
