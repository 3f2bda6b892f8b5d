// The small things that all pages are made of.
import { html, useState } from "../html.js";
import { isReadOnly, notify, now } from "../state.js";
import { printable } from "../model/ansi.js";
import { ago, duration, moment, shortId } from "../model/text.js";
import { Icon } from "./icons.js";

export async function copy(text, what = "Copied") {
  try {
    await navigator.clipboard.writeText(text);
    notify(what);
  } catch {
    notify("The browser does not let this page copy.", "bad");
  }
}

// What others have named: however its letters run, what stands beside it stays where it is, and it cannot pass for another name.
export const Name = ({ children }) => html`<bdi>${printable(String(children ?? ""))}</bdi>`;

// An id: short to read, whole to copy, and a way there if it has one.
export function Id({ id, href, whole = false }) {
  if (!id) return null;
  const shown = whole ? id : shortId(id);
  return html`<span class="id" title=${id}>
    ${href ? html`<a href=${href}>${shown}</a>` : html`<code>${shown}</code>`}
    <button class="ghost tiny" type="button" aria-label=${`Copy ${id}`} onClick=${(event) => (event.stopPropagation(), copy(id))}>
      <${Icon} name="copy" size=${12} /></button>
  </span>`;
}

const STATUS = {
  completed: ["ok", "good"],
  in_progress: ["live", "busy"],
  interpreting: ["live", "busy"],
  queued: ["clock", "busy"],
  running: ["live", "good"],
  failed: ["fail", "bad"],
  incomplete: ["warn", "warn"],
  cancelled: ["stop", "idle"],
  expired: ["clock", "idle"],
  paused: ["pause", "warn"],
  waits: ["approvals", "warn"],
  idle: ["clock", "idle"],
  active: ["live", "good"],
  ready: ["live", "good"],
  connected: ["live", "good"],
  pending: ["clock", "busy"],
  suspended: ["pause", "idle"],
  skipped: ["forward", "idle"],
};

// Shape and word, so that the colour says nothing alone.
export function Status({ status }) {
  const [icon, tone] = STATUS[status] ?? ["more", "idle"];
  return html`<span class=${`status ${tone}`}><${Icon} name=${icon} size=${13} /><span>${status === "waits" ? "waiting" : status.replace("_", " ")}</span></span>`;
}

export const Ago = ({ at }) => (at == null ? null : html`<time title=${moment(at * 1000)} dateTime=${new Date(at * 1000).toISOString()}>${ago(at, now.value)}</time>`);

export const Ticking = ({ since }) => html`<span class="number">${duration(now.value - since)}</span>`;

// What holds a run, since when. How a program answers an approval is said elsewhere: here its card is on the page.
const HELD = { approval: "Waiting for approval", pause: "Paused" };
export const Waiting = ({ wait }) => html`<b>${HELD[wait.kind] ?? wait.kind}</b> <${Ticking} since=${wait.since} /> ${wait.kind !== "approval" && html`<${Name}>${wait.detail}</${Name}>`}`;

export function Button({ children, onClick, icon, tone = "", label, isOff = false, title }) {
  const [isBusy, setBusy] = useState(false);
  const press = async (event) => {
    const going = onClick?.(event);
    if (!(going instanceof Promise)) return;
    setBusy(true);
    try {
      await going;
    } finally {
      setBusy(false);
    }
  };
  return html`<button type="button" class=${`button ${tone}`} onClick=${press} disabled=${isOff || isBusy} aria-label=${label} title=${title ?? label}>
    ${icon && html`<${Icon} name=${icon} size=${14} />`}${children && html`<span>${children}</span>`}
  </button>`;
}

// What changes something is not shown to a key that only reads.
export const Acting = ({ children }) => (isReadOnly() ? null : children);

// Where a key is named: Apple's keyboards have another.
export const META = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘" : "Ctrl";

// Two presses for what cannot be taken back; the second within four seconds.
export function Sure({ children, onClick, icon = "trash", label }) {
  const [isArmed, arm] = useState(false);
  const press = () => {
    if (isArmed) return onClick();
    arm(true);
    setTimeout(() => arm(false), 4000);
    return undefined;
  };
  return html`<${Button} icon=${icon} tone=${isArmed ? "danger" : "quiet"} onClick=${press} label=${isArmed ? undefined : label}>
    ${isArmed ? "Really?" : children}</${Button}>`;
}

export const Head = ({ title, children, note }) => html`<header class="head">
  <div><h1>${title}</h1>${note && html`<p class="muted">${note}</p>`}</div><div class="actions">${children}</div></header>`;

export const Skeleton = ({ rows = 6 }) => html`<div class="skeleton" role="status" aria-label="Loading">
  ${Array.from({ length: rows }, (_, index) => html`<div key=${index}></div>`)}</div>`;

export const Problem = ({ message, onAgain }) => html`<div class="problem" role="alert"><${Icon} name="warn" /><p>${message}</p>
  ${onAgain && html`<${Button} onClick=${onAgain}>Try again</${Button}>`}</div>`;

export function Empty({ title, children, code }) {
  return html`<section class="empty"><h2>${title}</h2>${children}${code && html`<${Code} text=${code} />`}</section>`;
}

export const Code = ({ text, label = "Copy" }) => html`<div class="code"><pre tabindex="0">${text}</pre>
  <button class="ghost" type="button" aria-label=${label} title=${label} onClick=${() => copy(text)}><${Icon} name="copy" size=${14} /></button></div>`;

// A page whose API this deployment does not have: what is missing, and how to get it.
export const Missing = ({ title, what, how, code }) => html`<${Head} title=${title} /><${Empty} title=${what} code=${code}><p>${how}</p></${Empty}>`;

export function Tabs({ tabs, chosen, onChoose, label }) {
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const at = tabs.findIndex((tab) => tab.id === chosen);
    const next = tabs[(at + step + tabs.length) % tabs.length];
    onChoose(next.id);
    event.currentTarget.querySelector(`[data-tab="${next.id}"]`)?.focus();
  };
  return html`<div class="tabs" role="tablist" aria-label=${label} onKeyDown=${move}>
    ${tabs.map((tab) => html`<button type="button" role="tab" key=${tab.id} data-tab=${tab.id} aria-selected=${tab.id === chosen}
      tabindex=${tab.id === chosen ? 0 : -1} onClick=${() => onChoose(tab.id)}>${tab.title}${tab.count != null && html` <span class="count">${tab.count}</span>`}</button>`)}
  </div>`;
}
