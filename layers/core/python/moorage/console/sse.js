// A stream of events, with its key in a header (EventSource cannot), taken up again where it broke off.
import { BASE } from "./api.js";
import { key, link, pageSeen } from "./state.js";

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 8000;
const FINAL = new Set(["response.completed", "response.incomplete", "response.failed"]);

// Calls `take` with each event of a response behind number `last()`, until the final one.
export const follow = (id, { last, take, catchUp, signal }) =>
  listen(`responses/${encodeURIComponent(id)}`, {
    query: () => ({ stream: "true", ...(last() >= 0 ? { starting_after: String(last()) } : {}) }),
    take: (event) => (take(event), FINAL.has(event.type)),
    catchUp,
    signal,
  });

// Calls `take` with each event, until one of which it says that it was the last. The stop is a signal's. A page that nobody sees holds no
// connection: browsers have six for all tabs of an address. What was said meanwhile `catchUp` reads; it tells whether that was all.
export async function listen(path, { query, take, catchUp, signal }) {
  let pause = FIRST_PAUSE_MS;
  for (let attempt = 0; !signal.aborted; attempt += 1) {
    await pageSeen(signal);
    if (attempt && (await catchUp())) return;
    const unseen = untilUnseen(signal);
    try {
      const asked = new URLSearchParams({ include_obfuscation: "false", ...query() });
      const answer = await fetch(`${BASE}${path}?${asked}`, {
        headers: { authorization: `Bearer ${key.value}` },
        signal: unseen.signal,
        cache: "no-store",
      });
      if (answer.status === 401 || answer.status === 404) return;
      if (!answer.ok) throw new Error(String(answer.status));
      link.value = "ok";
      for await (const event of events(answer.body)) {
        pause = FIRST_PAUSE_MS;
        if (take(event)) return;
      }
    } catch {
      if (signal.aborted) return;
      if (unseen.signal.aborted) continue;
      link.value = "lost";
    } finally {
      unseen.forget();
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
  }
}

// A signal that goes with another one, or when the page goes out of sight.
function untilUnseen(signal) {
  const stop = new AbortController();
  const end = () => stop.abort();
  const look = () => document.hidden && end();
  document.addEventListener("visibilitychange", look);
  signal.addEventListener("abort", end);
  const forget = () => {
    document.removeEventListener("visibilitychange", look);
    signal.removeEventListener("abort", end);
  };
  return { signal: stop.signal, forget };
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const line = block.split("\n").find((each) => each.startsWith("data: "));
      if (line && line !== "data: [DONE]") yield JSON.parse(line.slice(6));
    }
  }
}
