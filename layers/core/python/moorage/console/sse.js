// A response's stream, with its key in a header (EventSource cannot), taken up again where it broke off.
import { BASE } from "./api.js";
import { key, link, pageSeen } from "./state.js";

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 8000;
const FINAL = new Set(["response.completed", "response.incomplete", "response.failed"]);

// Calls `take` with each event behind number `last()`, until the final one. The stop is a signal's. A page that nobody sees holds no connection:
// browsers have six for all tabs of an address. What was said meanwhile `catchUp` reads from the log, which knows when; it tells whether that was all.
export async function follow(id, { last, take, catchUp, signal }) {
  let pause = FIRST_PAUSE_MS;
  for (let attempt = 0; !signal.aborted; attempt += 1) {
    await pageSeen(signal);
    if (attempt && (await catchUp())) return;
    const unseen = untilUnseen(signal);
    try {
      const query = new URLSearchParams({ stream: "true", include_obfuscation: "false" });
      if (last() >= 0) query.set("starting_after", String(last()));
      const answer = await fetch(`${BASE}responses/${encodeURIComponent(id)}?${query}`, {
        headers: { authorization: `Bearer ${key.value}` },
        signal: unseen.signal,
        cache: "no-store",
      });
      if (answer.status === 401 || answer.status === 404) return;
      if (!answer.ok) throw new Error(String(answer.status));
      link.value = "ok";
      for await (const event of events(answer.body)) {
        pause = FIRST_PAUSE_MS;
        take(event);
        if (FINAL.has(event.type)) return;
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
