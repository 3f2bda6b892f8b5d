// The browser of a container: what it shows, and the mouse and the keys of whoever takes it over.
import { html, useEffect, useRef, useState } from "../html.js";
import { get, post } from "../api.js";
import { isReadOnly, notify, pageSeen } from "../state.js";
import { Over, PICTURE, PLACE } from "../ui/drawn.js";
import { Acting, Button, Name } from "../ui/parts.js";

const RENEWED_MS = 20_000;
const WAIT_MS = 15_000;
const PAUSE_MS = 150;
const CLOSED_PAUSE_MS = 3000;
const ACTIONS_MAX = 25;
const DRAG_PIXELS = 5;
const NAMED = { Control: "CTRL", Meta: "META", Alt: "ALT", Shift: "SHIFT" };
const later = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export function Screen({ container }) {
  const path = `containers/${container.id}/screen`;
  const [seen, see] = useState(null);
  const [picture, show] = useState(null);
  const hands = useRef(null);
  const [isHolding, hold] = useState(false);
  useEffect(() => {
    const stop = new AbortController();
    watch(path, { see, show, signal: stop.signal });
    return () => {
      stop.abort();
      hands.current?.give();
      hands.current = null;
    };
  }, [path]);
  const take = async () => {
    const mine = new Hands(path, (message) => {
      notify(message, "bad");
      if (hands.current === mine) letGo();
    });
    if (!(await mine.take())) return;
    hands.current = mine;
    hold(true);
  };
  const letGo = () => {
    hands.current?.give();
    hands.current = null;
    hold(false);
  };
  return html`<section class="screen-of" aria-label="Screen">
    <p class="line"><span class="muted" role="status">${standing(seen, isHolding)}</span>${seen?.url && html`<${Name}>${seen.title}</${Name}><span class="muted"><${Name}>${seen.url}</${Name}></span>`}
      <${Acting}>${isHolding ? html`<${Button} icon="play" onClick=${letGo}>Hand back</${Button}>` : html`<${Button} icon="pause" isOff=${Boolean(seen?.holder)} onClick=${take}>Take over</${Button}>`}</${Acting}></p>
    ${isHolding && html`<${Address} onGo=${(url) => hands.current?.act({ type: "navigate", url })} />`}
    ${picture && html`<${Pane} picture=${picture} hands=${isHolding ? hands.current : null} pointer=${seen?.pointer} />`}</section>`;
}

function standing(seen, isHolding) {
  if (!seen) return "It is looked for.";
  if (seen.problem) return seen.problem;
  if (isHolding) return "You have control. Calls of the model wait. Shift+F6 leaves the keys.";
  if (seen.status === "closed") return `No browser runs.${isReadOnly() ? "" : " To take over starts one."}`;
  return seen.holder ? "A person has control. Calls of the model wait." : "The model has control.";
}

function Address({ onGo }) {
  const [url, type] = useState("");
  const go = (event) => {
    event.preventDefault();
    if (url.trim()) onGo(url.trim());
  };
  return html`<form class="line" onSubmit=${go}><input type="text" aria-label="Address" placeholder="address" value=${url} onInput=${(event) => type(event.target.value)} /><${Button} onClick=${go}>Open</${Button}></form>`;
}

// The picture takes mouse and keys from whoever has control.
function Pane({ picture, hands, pointer }) {
  const image = useRef(null);
  const begun = useRef(null);
  const pane = useRef(null);
  useEffect(() => {
    if (hands) pane.current.focus();
    const wheel = (event) => {
      if (!hands) return;
      event.preventDefault();
      hands.act({ type: "scroll", ...place(event), scroll_x: Math.round(event.deltaX), scroll_y: Math.round(event.deltaY) });
    };
    pane.current.addEventListener("wheel", wheel, { passive: false });
    const box = pane.current;
    return () => box.removeEventListener("wheel", wheel);
  }, [hands]);
  const place = (event) => {
    const box = image.current.getBoundingClientRect();
    const on = (at, from, size, whole) => Math.max(0, Math.min(whole - 1, Math.round(((at - from) / size) * whole)));
    return { x: on(event.clientX, box.left, box.width, image.current.naturalWidth), y: on(event.clientY, box.top, box.height, image.current.naturalHeight) };
  };
  const press = (event) => {
    if (!hands) return;
    event.preventDefault();
    pane.current.focus();
    pane.current.setPointerCapture?.(event.pointerId);
    begun.current = { ...place(event), button: event.button };
  };
  const release = (event) => {
    const from = begun.current;
    begun.current = null;
    if (!hands || !from) return;
    const to = place(event);
    const isDrag = from.button === 0 && Math.hypot(to.x - from.x, to.y - from.y) > DRAG_PIXELS;
    if (isDrag) hands.act({ type: "drag", path: [{ x: from.x, y: from.y }, to] });
    else hands.act({ type: "click", ...to, button: ["left", "wheel", "right", "back", "forward"][from.button] ?? "left" });
  };
  const type = (event) => {
    if (!hands || (event.key === "v" && (event.ctrlKey || event.metaKey))) return;
    if (event.key === "F6" && event.shiftKey) return pane.current.blur();
    event.preventDefault();
    event.stopPropagation();
    if (event.key in NAMED || event.isComposing || event.key === "Dead" || event.key === "Process") return undefined;
    const held = [event.ctrlKey && "CTRL", event.altKey && "ALT", event.metaKey && "META"].filter(Boolean);
    if ([...event.key].length === 1 && !held.length) return hands.act({ type: "type", text: event.key });
    return hands.act({ type: "keypress", keys: [...held, ...(event.shiftKey ? ["SHIFT"] : []), event.key === " " ? "SPACE" : event.key.toUpperCase()] });
  };
  const paste = (event) => {
    const text = event.clipboardData?.getData("text");
    if (!hands || !text) return;
    event.preventDefault();
    hands.act({ type: "type", text });
  };
  const size = image.current?.naturalWidth ? [image.current.naturalWidth, image.current.naturalHeight] : [1280, 800];
  return html`<div class=${hands ? "pane" : ""} style=${PLACE} ref=${pane} tabindex="0" role="application" aria-label="Page of the browser" onPointerDown=${press} onPointerUp=${release} onKeyDown=${type} onPaste=${paste} onContextMenu=${(event) => hands && event.preventDefault()}>
    <img ref=${image} src=${picture} style=${PICTURE} alt="The page of the browser" draggable=${false} />
    ${pointer && html`<${Over} size=${size}><circle cx=${pointer.x} cy=${pointer.y} r="6" /></${Over}>`}</div>`;
}

// Asks for picture after picture, as long as somebody looks.
async function watch(path, { see, show, signal }) {
  let after = 0;
  while (!signal.aborted) {
    await pageSeen(signal);
    const answer = await get(path, { starting_after: after, wait_ms: after ? WAIT_MS : 0 }, signal);
    if (signal.aborted) return;
    if (!answer.ok) see({ problem: answer.message });
    else {
      see(answer.data);
      if (answer.data.picture) show(answer.data.picture);
      if (answer.data.status === "closed") show(null);
      // Numbers of a browser that was started anew begin again.
      after = answer.data.status === "closed" ? 0 : answer.data.number;
    }
    await later(answer.ok && answer.data.status === "open" ? PAUSE_MS : CLOSED_PAUSE_MS);
  }
}

// A person's control of a screen: what they do goes out in order, and once. It ends with the page, or a minute behind it.
class Hands {
  #waiting = [];
  #isBusy = false;
  #number = 0;
  #timer = 0;

  constructor(path, refused) {
    this.path = path;
    this.refused = refused;
    this.holder = crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
  }

  async take() {
    const answer = await post(`${this.path}/control`, { action: "take", holder: this.holder });
    if (!answer.ok) this.refused(answer.message);
    else this.#timer = setTimeout(() => this.take(), RENEWED_MS);
    return answer.ok;
  }

  give() {
    clearTimeout(this.#timer);
    this.refused = () => {};
    post(`${this.path}/control`, { action: "give", holder: this.holder });
  }

  async act(action) {
    const last = this.#waiting.at(-1);
    if (action.type === "type" && last?.type === "type") last.text += action.text;
    else if (action.type === "scroll" && last?.type === "scroll") Object.assign(last, { scroll_x: last.scroll_x + action.scroll_x, scroll_y: last.scroll_y + action.scroll_y });
    else this.#waiting.push(action);
    if (this.#isBusy) return;
    this.#isBusy = true;
    while (this.#waiting.length) {
      const actions = this.#waiting.splice(0, ACTIONS_MAX);
      const body = { holder: this.holder, number: (this.#number += 1), actions };
      let answer = await post(`${this.path}/input`, body);
      if (answer.status === 0) answer = await post(`${this.path}/input`, body);
      const failed = answer.ok ? answer.data.actions.find((each) => !each.ok) : null;
      if (failed) notify(failed.error, "bad");
      if (answer.ok) continue;
      this.#waiting = [];
      this.refused(answer.message);
    }
    this.#isBusy = false;
  }
}
