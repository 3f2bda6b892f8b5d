// What all pages share: who asks, where one is, and what was said at the edge of the screen.
import { signal } from "./html.js";
import { parse } from "./router.js";

const KEY = "moorage.key";
const COMMAND = document.querySelector('meta[name="moorage-command"]').content;

// A command as it is typed on the machine of the stack, and a sentence that names some in quotes.
export const command = (words) => `${COMMAND} ${words}`;
export const typed = (text) => text.replaceAll(/(?<=')moorage(?= [a-z-])/g, () => COMMAND);

export const key = signal(sessionStorage.getItem(KEY) ?? "");
export const me = signal(null);
export const route = signal(parse(location.hash));
export const link = signal("ok"); // or "lost", while the API cannot be reached
export const now = signal(Date.now());
export const notices = signal([]);
export const palette = signal(false);
export const help = signal(false);
export const drawer = signal(null); // the file of a container that is shown over the page
export const theme = signal(document.documentElement.dataset.theme ?? "system");

window.addEventListener("hashchange", () => (route.value = parse(location.hash)));
window.addEventListener("address", (event) => (route.value = parse(event.detail)));
setInterval(() => document.hidden || (now.value = Date.now()), 1000);

// Resolves as soon as somebody can see the page; at once where somebody does.
export function pageSeen(signal) {
  if (!document.hidden || signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const look = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", look);
      signal.removeEventListener("abort", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look);
  });
}

export function enter(secret, who) {
  sessionStorage.setItem(KEY, secret);
  key.value = secret;
  me.value = who;
}

export function leave() {
  sessionStorage.removeItem(KEY);
  key.value = "";
  me.value = null;
}

export const isReadOnly = () => me.value?.key.scope === "read";

let counted = 0;
export function notify(text, kind = "note") {
  const id = ++counted;
  notices.value = [...notices.value.slice(-3), { id, text, kind }];
  setTimeout(() => (notices.value = notices.value.filter((each) => each.id !== id)), kind === "bad" ? 9000 : 3500);
}

export function chooseTheme(chosen) {
  theme.value = chosen;
  if (chosen === "system") {
    localStorage.removeItem("moorage.theme");
    delete document.documentElement.dataset.theme;
  } else {
    localStorage.setItem("moorage.theme", chosen);
    document.documentElement.dataset.theme = chosen;
  }
}
