// What programs print, as runs of text with classes. Colours are honoured; whatever else a terminal would obey is taken out. No DOM here.

const NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
// CSI sequences, OSC and other strings up to their end, and two-character escapes.
const ESCAPE = /\x1b(?:\[([0-9:;<=>?]*)[ -/]*([@-~])|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)|[ -/]*[0-~]|$)/g;
// Control codes that print nothing, and marks that would turn the reading order of what stands beside them.
const UNSEEN = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

export const CHARS_SHOWN = 65_536;

// [{ text, style }], style being a string of classes or "".
export function runs(text) {
  const found = [];
  let state = plain();
  let start = 0;
  const add = (piece) => {
    const shown = overwritten(piece).replace(UNSEEN, "");
    if (shown) found.push({ text: shown, style: classes(state) });
  };
  for (const match of text.matchAll(ESCAPE)) {
    add(text.slice(start, match.index));
    start = match.index + match[0].length;
    if (match[2] === "m") state = styled(state, match[1]);
  }
  add(text.slice(start));
  return found;
}

export const printable = (text) => text.replace(ESCAPE, "").replace(UNSEEN, "");

// Somebody's name in a sentence of ours: however its letters run, the words beside it stay where they are.
export const isolated = (text) => `\u2068${printable(text)}\u2069`;

// A progress bar that goes back to the beginning of its line shows its last state.
function overwritten(text) {
  if (!text.includes("\r")) return text;
  return text
    .replace(/\r\n/g, "\n")
    .split("\n")
    .map((line) => line.split("\r").reduce((shown, part) => part + shown.slice(part.length), ""))
    .join("\n");
}

const plain = () => ({ colour: null, isBold: false, isDim: false, isItalic: false, isUnderlined: false });

function styled(state, parameters) {
  let next = { ...state };
  const codes = (parameters || "0").split(/[;:]/).map(Number);
  for (let at = 0; at < codes.length; at += 1) {
    const code = codes[at];
    if (code === 0) next = plain();
    else if (code === 1) next.isBold = true;
    else if (code === 2) next.isDim = true;
    else if (code === 3) next.isItalic = true;
    else if (code === 4) next.isUnderlined = true;
    else if (code === 22) next.isBold = next.isDim = false;
    else if (code === 23) next.isItalic = false;
    else if (code === 24) next.isUnderlined = false;
    else if (code >= 30 && code <= 37) next.colour = NAMES[code - 30];
    else if (code >= 90 && code <= 97) next.colour = NAMES[code - 90];
    else if (code === 39) next.colour = null;
    else if (code === 38 || code === 48) at += codes[at + 1] === 5 ? 2 : 4; // colours of a palette: told from text by nothing
  }
  return next;
}

const classes = (state) =>
  [state.colour && `ansi-${state.colour}`, state.isBold && "bold", state.isDim && "dim", state.isItalic && "italic", state.isUnderlined && "underlined"]
    .filter(Boolean)
    .join(" ");
