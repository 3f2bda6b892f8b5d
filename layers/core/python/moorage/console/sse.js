// A response's stream, with its key in a header (EventSource cannot), taken up again where it broke off.
import { BASE } from "./api.js";
import { key, link } from "./state.js";

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 8000;
const FINAL = new Set(["response.completed", "response.incomplete", "response.failed"]);

// Calls `take` with each event behind number `after`, until the last one. The stop is a signal's.
export async function follow(id, after, take, signal) {
  let pause = FIRST_PAUSE_MS;
  let last = after;
  while (!signal.aborted) {
    try {
      const query = new URLSearchParams({ stream: "true", include_obfuscation: "false" });
      if (last >= 0) query.set("starting_after", String(last));
      const answer = await fetch(`${BASE}responses/${encodeURIComponent(id)}?${query}`, {
        headers: { authorization: `Bearer ${key.value}` },
        signal,
        cache: "no-store",
      });
      if (answer.status === 401 || answer.status === 404) return;
      if (!answer.ok) throw new Error(String(answer.status));
      link.value = "ok";
      for await (const event of events(answer.body)) {
        pause = FIRST_PAUSE_MS;
        last = event.sequence_number;
        take(event);
        if (FINAL.has(event.type)) return;
      }
    } catch {
      if (signal.aborted) return;
      link.value = "lost";
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
  }
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
