// The frame around all pages: who asks, where to go, what was said.
import { html, render, useEffect, useState } from "./html.js";
import { call, get } from "./api.js";
import { drawer, enter, help, key, leave, link, me, notices, palette, route, theme, chooseTheme, isReadOnly } from "./state.js";
import { address, go } from "./router.js";
import { useData, useKeys } from "./ui/data.js";
import { Icon } from "./ui/icons.js";
import { Login } from "./pages/login.js";
import { Palette } from "./ui/palette.js";
import { META } from "./ui/parts.js";
import { lazy } from "./ui/lazy.js";
import { PAGES } from "./pages/all.js";

const Help = lazy(() => import("./ui/help.js"), "Help");
const FileDrawer = lazy(() => import("./ui/file_drawer.js"), "FileDrawer");
const THEMES = { system: ["screen", "light"], light: ["sun", "dark"], dark: ["moon", "system"] };

function App() {
  useEffect(() => {
    const stop = new AbortController();
    if (key.value && !me.value) recognise(stop.signal);
    return () => stop.abort();
  }, [key.value]);
  if (!key.value) return html`<${Login} /><${Notices} />`;
  return html`<${Shell} /><${Notices} />${palette.value && html`<${Palette} />`}${help.value && html`<${Help} />`}${drawer.value && html`<${FileDrawer} key=${drawer.value.fileId} ...${drawer.value} />`}`;
}

// A key that was made for this page ends, and so does a token; one that was pasted is only forgotten. The page leaves first, which ends its
// requests: none may come behind the key's end, and be refused.
async function signOut() {
  const secret = key.value;
  leave();
  const answer = await call("DELETE", "console/session", { secret });
  if (answer.data?.logout_url) location.assign(answer.data.logout_url);
}

async function recognise(signal) {
  const answer = await get("me", {}, signal);
  if (signal.aborted) return;
  if (answer.ok) me.value = answer.data;
  else if (key.value) setTimeout(() => signal.aborted || recognise(signal), 2000);
}

function Shell() {
  const { page } = route.value;
  const shown = PAGES.find((each) => each.id === page);
  useEffect(() => {
    document.title = `${shown?.title ?? "Not found"} · moorage`;
  }, [page]);
  useShortcuts();
  return html`<a class="skip" href="#main" onClick=${(event) => (event.preventDefault(), document.getElementById("main").focus())}>Skip to the page</a>
    <${Rail} page=${page} />
    <div class="frame">
      <${Bar} title=${shown?.title ?? "Not found"} />
      <main id="main" tabindex="-1">${shown ? html`<${shown.View} key=${`${page}/${route.value.id}`} />` : html`<p class="empty">There is no such page. <a href="#/runs">Runs</a></p>`}</main>
    </div>`;
}

const APPROVALS_LOOK_MS = 5000;

// On a phone the first four pages stand at the bottom, with their names, and the others behind "More".
function Rail({ page }) {
  const [isOpen, open] = useState(false);
  const waiting = useData((signal) => get("approvals", { limit: 100 }, signal), [], { every: APPROVALS_LOOK_MS }).data?.data.length ?? 0;
  useEffect(() => open(false), [page, route.value.id]);
  return html`<nav class=${`rail ${isOpen ? "open" : ""}`} aria-label="Pages">
    <a class="brand" href="#/runs"><${Icon} name="anchor" size=${20} /><b>moorage</b></a>
    ${PAGES.filter((each) => !each.isHidden).map(
      (each) => html`<a key=${each.id} href=${address(each.id)} class=${each.group ?? ""} aria-current=${each.id === page ? "page" : undefined} title=${each.title}>
        <${Icon} name=${each.icon ?? each.id} /><span>${each.title}</span>${each.id === "approvals" && waiting > 0 && html`<em class="badge" aria-label=${`${waiting} waiting`}>${waiting}</em>`}</a>`,
    )}
    <button type="button" class="more-pages" aria-expanded=${isOpen} onClick=${() => open(!isOpen)}><${Icon} name="more" /><span>More</span></button>
  </nav>`;
}

function Bar({ title }) {
  const { id, page } = route.value;
  const [icon, following] = THEMES[theme.value];
  return html`<header class="topbar">
    <ol class="crumbs" aria-label="Where you are">
      <li>${id ? html`<a href=${address(page)}>${title}</a>` : title}</li>${id && html`<li><code>${id}</code></li>`}
    </ol>
    ${link.value === "lost" && html`<span class="status warn" role="status"><${Icon} name="warn" size=${13} />reconnecting</span>`}
    ${isReadOnly() && html`<span class="chip" title="This key looks and changes nothing">read only</span>`}
    <button type="button" class="button quiet find" onClick=${() => (palette.value = true)} title="Jump to an id or a page">
      <${Icon} name="search" size=${14} /><span>Jump to…</span><kbd>${META} K</kbd></button>
    ${me.value && html`<span class="chip" title=${`Key ${me.value.key.id} ${me.value.key.name}`}>${me.value.tenant}</span>`}
    <button type="button" class="ghost" aria-label=${`Theme: ${theme.value}. Change to ${following}`} title=${`Theme: ${theme.value}`}
      onClick=${() => chooseTheme(following)}><${Icon} name=${icon} /></button>
    <button type="button" class="ghost" aria-label="Forget the key and leave" title="Forget the key and leave" onClick=${signOut}><${Icon} name="leave" /></button>
  </header>`;
}

function useShortcuts() {
  useKeys((event) => {
    if (waiting) {
      const chosen = PAGES.find((each) => each.letter === event.key);
      waiting = false;
      if (chosen) go(chosen.id);
      return;
    }
    if (event.key === "g") {
      waiting = true;
      setTimeout(() => (waiting = false), 1200);
    } else if (event.key === "?") help.value = true;
    else if (event.key === "/") {
      const field = document.querySelector("[data-filter]");
      if (field) {
        event.preventDefault();
        field.focus();
      }
    } else if (event.key === "Escape" && route.value.id && !palette.value && !help.value && !drawer.value) go(route.value.page);
  });
  useEffect(() => {
    const open = (event) => {
      if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        palette.value = !palette.value;
      }
    };
    document.addEventListener("keydown", open);
    return () => document.removeEventListener("keydown", open);
  }, []);
}

let waiting = false;

const Notices = () => html`<div class="notices" aria-live="polite">
  ${notices.value.map((each) => html`<p key=${each.id} class=${each.kind}>${each.text}</p>`)}</div>`;

// A code in the address is exchanged once, and leaves the address before anything else is done.
async function begin() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const code = asked.get("k");
  if (code) {
    history.replaceState(null, "", address("runs", asked.get("run") ?? ""));
    window.dispatchEvent(new HashChangeEvent("hashchange"));
    const answer = await call("POST", "console/session", { secret: code });
    if (answer.ok) enter(answer.data.key, null);
    else notices.value = [{ id: 0, text: answer.message, kind: "bad" }];
  }
  document.getElementById("app").replaceChildren();
  render(html`<${App} />`, document.getElementById("app"));
}

begin();
