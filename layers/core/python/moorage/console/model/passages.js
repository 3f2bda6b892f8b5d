// What a search of a vector store is asked, and which part of a passage is shown. No DOM here.

const OPERATORS = { "!=": "ne", ">=": "gte", "<=": "lte", "=": "eq", ">": "gt", "<": "lt" };
const CONDITION = /^([^\s=!<>]+)(!=|>=|<=|=|>|<)(?:"([^"]*)"|(\S*))$/;
const CHARS_AROUND = 200;

// subject=sea year>=2026 title="a b" as a filter; null for none. `problem` is the word that is none.
export function filterOf(text) {
  const words = text.match(/(?:"[^"]*"|[^\s"])+/g) ?? [];
  const filters = [];
  for (const word of words) {
    const found = CONDITION.exec(word);
    if (!found) return { problem: word };
    filters.push({ type: OPERATORS[found[2]], key: found[1], value: found[3] ?? valueOf(found[4]) });
  }
  return { filter: filters.length > 1 ? { type: "and", filters } : (filters[0] ?? null) };
}

// As attributes are compared by their types, a number or a yes is meant as such unless it is quoted.
function valueOf(text) {
  if (text === "true" || text === "false") return text === "true";
  return /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : text;
}

// The part of a passage around the first words that were asked for, in pieces of which those words are marked.
export function excerpt(text, query, { isWhole = false } = {}) {
  const words = [...new Set(query.toLowerCase().match(/[\p{L}\p{N}]{2,}/gu) ?? [])];
  const pattern = words.length ? new RegExp(`(?<![\\p{L}\\p{N}])(?:${words.join("|")})(?![\\p{L}\\p{N}])`, "giu") : null;
  const at = pattern ? Math.max(0, text.search(pattern)) : 0;
  const from = isWhole ? 0 : edge(text, at - CHARS_AROUND, false);
  const to = isWhole ? text.length : edge(text, at + CHARS_AROUND * 2, true);
  return { isCut: from > 0 || to < text.length, isBegun: from > 0, isGoing: to < text.length, pieces: marked(text.slice(from, to), pattern) };
}

// The nearest place between words, so that none is torn; never within a letter of two halves.
function edge(text, wanted, isEnd) {
  if (wanted <= 0) return 0;
  if (wanted >= text.length) return text.length;
  const near = isEnd ? text.indexOf(" ", wanted) : text.lastIndexOf(" ", wanted);
  if (near >= 0 && Math.abs(near - wanted) < 40) return near;
  return /[\udc00-\udfff]/.test(text[wanted]) ? wanted - 1 : wanted;
}

function marked(text, pattern) {
  if (!pattern) return [{ text, isMarked: false }];
  const pieces = [];
  let last = 0;
  for (const found of text.matchAll(pattern)) {
    if (found.index > last) pieces.push({ text: text.slice(last, found.index), isMarked: false });
    pieces.push({ text: found[0], isMarked: true });
    last = found.index + found[0].length;
  }
  if (last < text.length) pieces.push({ text: text.slice(last), isMarked: false });
  return pieces;
}
