// A line of the doctor's: what was found, what to do about it, and what it is known by.
import { html } from "../html.js";
import { typed } from "../state.js";
import { Icon } from "../ui/icons.js";

export const ok = (what, detail) => ({ level: "ok", what, detail });
export const warn = (what, advice, detail) => ({ level: "warn", what, advice, detail });
export const fail = (what, advice, detail) => ({ level: "fail", what, advice, detail });

const ICONS = { ok: ["ok", "good"], warn: ["warn", "warn"], fail: ["fail", "bad"], busy: ["clock", "busy"] };

export function Check({ said }) {
  const [icon, tone] = ICONS[said.level];
  return html`<li><span class=${`status ${tone}`}><${Icon} name=${icon} size=${14} /><span class="unseen">${said.level}</span></span><div><p>${said.what}</p>${said.advice && html`<p class="muted">${typeof said.advice === "string" ? typed(said.advice) : said.advice}</p>`}${said.detail && html`<p class="muted">${typeof said.detail === "string" ? typed(said.detail) : said.detail}</p>`}</div></li>`;
}
