// A picture of a screen, with what was done to it drawn on it: a circle for a click, a line for a way, words for keys.
import { html, useEffect, useState } from "../html.js";
import { get } from "../api.js";
import { printable } from "../model/ansi.js";

const WORDS_MAX = 40;
const PICTURES = "computer_call_output.output.image_url";

const COLOUR = "#d0006f";
export const PLACE = { position: "relative", width: "fit-content", maxWidth: "100%", margin: "8px 0" };
export const PICTURE = { display: "block", maxWidth: "100%" };
const OVER = { position: "absolute", inset: 0, width: "100%", height: "100%", pointerEvents: "none" };

export function Drawn({ url, actions, page, label }) {
  return html`<figure style=${PLACE}><img src=${url} alt=${label} style=${PICTURE} />
    <${Over} size=${[page?.width ?? 1280, page?.height ?? 800]} label=${`Drawn on it: ${actions.map(inWords).join("; ") || "nothing"}`}>${marks(actions)}</${Over}></figure>`;
}

export const Over = ({ size, label, children }) => html`<svg viewBox=${`0 0 ${size[0]} ${size[1]}`} style=${OVER} role=${label ? "img" : null} aria-label=${label} aria-hidden=${label ? null : "true"}
  fill="none" stroke=${COLOUR} stroke-width="3">${children}</svg>`;

// A picture lies beside the log, and most requests do not ask for it. It is read from the log when its card is drawn.
export function usePicture(runId, mark, url) {
  const [found, set] = useState(null);
  const isMissing = !url && Boolean(runId) && mark?.to > 0;
  useEffect(() => {
    if (!isMissing) return undefined;
    const stop = new AbortController();
    get(`responses/${encodeURIComponent(runId)}/events`, { after: mark.to - 1, limit: 1, "include[]": PICTURES }, stop.signal).then((answer) => {
      if (answer.ok) set(answer.data.data[0]?.event.item?.output?.image_url ?? null);
    });
    return () => stop.abort();
  }, [runId, isMissing && mark.to]);
  return url ?? found;
}

export function inWords({ type, path, keys, text, ref, ...rest }) {
  const held = keys?.length ? ` ${keys.join("+")}` : "";
  const place = ref !== undefined ? ` element ${ref}` : rest.x !== undefined ? ` at ${rest.x}, ${rest.y}` : "";
  const way = path ? ` ${path.map((point) => `${point.x}, ${point.y}`).join(" → ")}` : "";
  return printable(`${type}${rest.button && rest.button !== "left" ? ` ${rest.button}` : ""}${held}${place}${way}${text === undefined ? "" : ` ${JSON.stringify(text)}`}`);
}

const Words = ({ x, y, children }) => html`<text x=${x} y=${y} fill=${COLOUR} stroke="#fff" stroke-width="4" paint-order="stroke" font-size="16" font-weight="600">${children}</text>`;

// Keys and texts stand where the last action with a place was.
function marks(actions) {
  let at = { x: 24, y: 24 };
  let lines = 0;
  return actions.map((action, number) => {
    if (action.path?.length) {
      at = action.path.at(-1);
      lines = 0;
      return html`<polyline key=${number} points=${action.path.map((point) => `${point.x},${point.y}`).join(" ")} />`;
    }
    if (action.x !== undefined) {
      at = action;
      lines = 0;
      const end = action.type === "scroll" ? html`<line x1=${at.x} y1=${at.y} x2=${at.x + (action.scroll_x ?? 0) / 4} y2=${at.y + (action.scroll_y ?? 0) / 4} />` : null;
      return html`<g key=${number}>${end}<circle cx=${at.x} cy=${at.y} r=${action.type === "move" ? 6 : 14} /><${Words} x=${at.x - 5} y=${at.y + 5}>${number + 1}</${Words}></g>`;
    }
    const words = action.text ?? action.keys?.join("+");
    if (!words) return null;
    lines += 1;
    return html`<${Words} key=${number} x=${at.x + 20} y=${at.y + 6 + 20 * lines}>${`${number + 1}: ${printable(words.slice(0, WORDS_MAX))}`}</${Words}>`;
  });
}
