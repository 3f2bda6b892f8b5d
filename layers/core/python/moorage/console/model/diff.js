// What became of a text, line by line: the shortest way from one to the other (Myers), or the whole of both where that would take too long. No DOM here.

const EDITS_MAX = 800;
const AROUND = 3;

// [{ kind: " " | "-" | "+", text, before, after }] with the numbers of the lines, counted from 1.
export function diff(before, after) {
  const [a, b] = [lines(before), lines(after)];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const middle = edits(a.slice(start, a.length - end), b.slice(start, b.length - end));
  const kinds = [...Array(start).fill(" "), ...middle, ...Array(end).fill(" ")];
  let [x, y] = [0, 0];
  return kinds.map((kind) => {
    if (kind !== "+") x += 1;
    if (kind !== "-") y += 1;
    return { kind, text: kind === "+" ? b[y - 1] : a[x - 1], before: kind === "+" ? null : x, after: kind === "-" ? null : y };
  });
}

// What changed with a few lines around it: [[line, …], …].
export function hunks(changes) {
  const found = [];
  let last = -Infinity;
  changes.forEach((change, at) => {
    if (change.kind === " ") return;
    const from = Math.max(0, at - AROUND);
    if (from > last) found.push({ from, to: at + AROUND });
    else found.at(-1).to = at + AROUND;
    last = at + AROUND;
  });
  return found.map(({ from, to }) => changes.slice(from, to + 1));
}

// The last line's end is a line of its own where there is one, so that a file that lost it differs.
const lines = (text) => (text === "" ? [] : text.split("\n").map((line, at, all) => (at < all.length - 1 ? `${line}\n` : line)).filter(Boolean));

function edits(a, b) {
  const whole = () => [...Array(a.length).fill("-"), ...Array(b.length).fill("+")];
  if (!a.length || !b.length) return whole();
  const reached = new Map([[1, 0]]);
  const trace = [];
  for (let cost = 0; cost <= Math.min(a.length + b.length, EDITS_MAX); cost += 1) {
    const row = new Map();
    for (let k = -cost; k <= cost; k += 2) {
      const isDown = k === -cost || (k !== cost && reached.get(k - 1) < reached.get(k + 1));
      let x = isDown ? reached.get(k + 1) : reached.get(k - 1) + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x += 1;
      row.set(k, x);
      if (x >= a.length && x - k >= b.length) return walked(a, b, [...trace, row], cost);
    }
    trace.push(row);
    for (const [k, x] of row) reached.set(k, x);
  }
  return whole();
}

// Back from the end over the rows of furthest places.
function walked(a, b, trace, cost) {
  const kinds = [];
  let [x, y] = [a.length, b.length];
  for (let step = cost; step > 0; step -= 1) {
    const row = trace[step - 1];
    const k = x - y;
    const isDown = k === -step || (k !== step && (row.get(k - 1) ?? -1) < (row.get(k + 1) ?? -1));
    const from = isDown ? k + 1 : k - 1;
    const place = row.get(from);
    while (x > place + (isDown ? 0 : 1) && y > place - from + (isDown ? 1 : 0)) {
      kinds.push(" ");
      x -= 1;
      y -= 1;
    }
    kinds.push(isDown ? "+" : "-");
    [x, y] = [place, place - from];
  }
  while (x > 0 && y > 0) {
    kinds.push(" ");
    x -= 1;
    y -= 1;
  }
  return kinds.reverse();
}
