// The lines of an output in which words stand. No DOM here.
import { runs } from "./ansi.js";

const CHARS_AROUND = 160;
const HITS_SHOWN = 200;

// { count, lines: [{ number, pieces }] }: how many lines have it, and the first of them, of each the part around the first place.
export function found(text, words) {
  const pattern = new RegExp(words.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "iu");
  const lines = [];
  let count = 0;
  let number = 0;
  for (let start = 0; start < text.length; ) {
    const end = text.indexOf("\n", start);
    const raw = text.slice(start, end < 0 ? text.length : end);
    start = end < 0 ? text.length : end + 1;
    number += 1;
    const line = /[\x00-\x1f\x7f]/.test(raw) ? runs(raw.replace(/\r$/, "")).map((run) => run.text).join("") : raw;
    const hit = pattern.exec(line);
    if (!hit) continue;
    count += 1;
    if (lines.length < HITS_SHOWN) lines.push({ number, ...around(line, hit.index, hit.index + hit[0].length) });
  }
  return { count, lines };
}

function around(line, from, to) {
  const begin = Math.max(0, from - CHARS_AROUND);
  const end = Math.min(line.length, to + CHARS_AROUND);
  return { before: `${begin > 0 ? "… " : ""}${line.slice(begin, from)}`, hit: line.slice(from, to), after: `${line.slice(to, end)}${end < line.length ? " …" : ""}` };
}
