// A terminal session of a container: what it prints comes by asking again and again, what is typed goes out piece by piece and in order.
import { get, post } from "./api.js";
import { pageSeen } from "./state.js";

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 8000;
const PIECE_CHARS_MAX = 16_384;

// Calls `print(text, { isFirst, isCut })` with all that is printed, and waits for it: what prints faster than it can be drawn waits in its turn.
// `tell(session)` hears how it stands. Ends when the session has, or with the signal.
export async function listen({ container_id, id }, { print, tell, signal }) {
  let [after, isFirst, pause] = [0, true, FIRST_PAUSE_MS];
  while (!signal.aborted) {
    await pageSeen(signal);
    const answer = await get(`sessions/${id}/output`, { starting_after: after, wait_ms: isFirst ? 0 : 20_000 }, signal);
    if (signal.aborted) return;
    if (!answer.ok) {
      if (answer.status === 404) return tell({ status: "gone" });
      await later(pause);
      pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
      continue;
    }
    pause = FIRST_PAUSE_MS;
    const { output, next, starting_after, status, outcome, exit_code } = answer.data;
    if (output) await print(output, { isFirst, isCut: starting_after > after });
    tell({ status, outcome, exit_code });
    if (status === "ended" && !output) return;
    // The sandbox of one that starts may have to be ordered again: asking for the session does that.
    if (status === "starting" && !output) {
      await get(`containers/${container_id}/sessions/${id}`, {}, signal);
      await later(FIRST_PAUSE_MS);
    } else isFirst = false;
    after = next;
  }
}

const later = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Keys are gathered while a piece is under way, so that none overtakes another. A piece has an id: one that is sent again is typed once.
export class Keyboard {
  #waiting = "";
  #isBusy = false;

  constructor(session, refused) {
    this.path = `sessions/${session.id}/input`;
    this.refused = refused;
  }

  async type(text) {
    this.#waiting += text;
    if (this.#isBusy) return;
    this.#isBusy = true;
    while (this.#waiting) {
      const piece = whole(this.#waiting.slice(0, PIECE_CHARS_MAX));
      this.#waiting = this.#waiting.slice(piece.length);
      const answer = await this.#send({ text: piece, id: crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}` });
      if (answer.ok) continue;
      this.#waiting = "";
      this.refused(answer.message);
    }
    this.#isBusy = false;
  }

  async #send(piece) {
    let answer = await post(this.path, piece);
    for (let pause = FIRST_PAUSE_MS; answer.status === 0 && pause <= LONGEST_PAUSE_MS; pause *= 2) {
      await later(pause);
      answer = await post(this.path, piece);
    }
    return answer;
  }
}

// Not in the middle of a character that is two units long.
const whole = (text) => (/[\ud800-\udbff]$/.test(text) && text.length > 1 ? text.slice(0, -1) : text);
