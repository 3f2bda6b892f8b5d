// The terminals of a container: its open sessions, and the screen of one of them.
import { html, useEffect, useRef, useState } from "../html.js";
import { get, post, remove } from "../api.js";
import { setQuery } from "../router.js";
import { Keyboard, listen } from "../sessions.js";
import { isReadOnly, notify, route, theme as chosenTheme } from "../state.js";
import { useData } from "../ui/data.js";
import { Acting, Ago, Button, Problem, Skeleton, Sure } from "../ui/parts.js";
import { fitting, openScreen, theme } from "../ui/screen.js";

const SIZE_SETTLES_MS = 150;
const START = { columns: 80, rows: 24 };

export function Terminals({ container }) {
  const path = `containers/${container.id}/sessions`;
  const open = useData((signal) => get(path, {}, signal), [container.id], { every: 5000 });
  const chosen = route.value.query.session ?? "";
  const choose = (session) => setQuery(route.value, { session });
  if (open.isLoading) return html`<${Skeleton} rows=${3} />`;
  if (open.problem && !open.data) return html`<${Problem} message=${open.problem} onAgain=${open.reload} />`;
  const sessions = open.data.data;
  const start = async () => {
    const made = await post(path, START);
    if (!made.ok) return notify(made.message, "bad");
    choose(made.data.id);
    return open.reload();
  };
  return html`<div class="line pad"><${Acting}><${Button} icon="plus" onClick=${start}>New terminal</${Button}></${Acting}>
      <span class="chips" role="group" aria-label="Open terminals">${sessions.map((each) => html`<button type="button" key=${each.id} class="chip" aria-pressed=${each.id === chosen} onClick=${() => choose(each.id)}>${each.command ?? "shell"} · <${Ago} at=${each.created_at} /></button>`)}</span>
      <span class="muted">${sessions.length ? "They run on when you leave. Shift+F6 leaves the keys of one." : chosen ? "" : "No terminal is open. A new one starts the sandbox if it sleeps, with a shell in /mnt/data."}</span></div>
    ${chosen && html`<${Session} key=${chosen} id=${chosen} container=${container} onEnd=${() => (choose(""), open.reload())} />`}`;
}

function Session({ id, container, onEnd }) {
  const place = useRef(null);
  const [standing, stand] = useState({ status: "starting" });
  const [problem, say] = useState("");
  useEffect(() => {
    const stop = new AbortController();
    const session = { id, container_id: container.id };
    show({ session, place: place.current, tell: stand, signal: stop.signal }).catch((error) => stop.signal.aborted || say(error.message));
    return () => stop.abort();
  }, [id]);
  const end = async () => {
    const answer = await remove(`sessions/${id}`);
    notify(answer.ok ? "It has ended." : answer.message, answer.ok ? "note" : "bad");
    if (answer.ok) onEnd();
  };
  return html`<section class="session" aria-label="Terminal">
    <p class="line"><span class="muted" role="status">${said(standing)}</span>${standing.status !== "ended" && standing.status !== "gone" && html`<${Acting}><${Sure} onClick=${end}>End it</${Sure}></${Acting}>`}</p>
    ${problem && html`<${Problem} message=${problem} />`}<div class="screen" ref=${place}></div></section>`;
}

function said({ status, outcome, exit_code }) {
  if (status === "starting") return "It starts.";
  if (status === "gone") return "There is no such session any more.";
  if (status !== "ended") return isReadOnly() ? "It runs. This key looks and types nothing." : "It runs.";
  return { exit: `It has ended with exit code ${exit_code}.`, timeout: "It has ended: its time was over.", killed: "It was ended.", lost: "It has ended with its sandbox." }[outcome] ?? "It has ended.";
}

async function show({ session, place, tell, signal }) {
  const terminal = await openScreen(place, { isReadOnly: isReadOnly(), ...START });
  const done = () => (watcher.disconnect(), unlisten(), terminal.dispose());
  const keyboard = new Keyboard(session, (message) => signal.aborted || notify(message, "bad"));
  // What a terminal answers to what was printed before it came, nobody waits for any more.
  let isCatchingUp = true;
  let isRunning = false;
  terminal.onData((text) => isRunning && !isCatchingUp && keyboard.type(text));
  terminal.attachCustomKeyEventHandler((event) => {
    if (event.key !== "F6" || !event.shiftKey) return true;
    terminal.blur();
    return false;
  });
  let timer = 0;
  const settle = () => {
    const size = fitting(terminal, place);
    if (!size || (size.columns === terminal.cols && size.rows === terminal.rows)) return;
    terminal.resize(size.columns, size.rows);
    clearTimeout(timer);
    if (isRunning && !isReadOnly()) timer = setTimeout(() => post(`sessions/${session.id}/resize`, size), SIZE_SETTLES_MS);
  };
  const watcher = new ResizeObserver(settle);
  watcher.observe(place);
  const unlisten = chosenTheme.subscribe(() => requestAnimationFrame(() => (terminal.options.theme = theme())));
  signal.addEventListener("abort", done, { once: true });
  if (signal.aborted) return done();
  terminal.focus();
  const print = (text, { isFirst, isCut }) =>
    new Promise((resolve) => {
      if (isCut) terminal.write("\r\n\x1b[0m… what was printed here is lost …\r\n");
      terminal.write(text, () => {
        if (isFirst) isCatchingUp = false;
        resolve();
      });
    });
  const hear = (standing) => {
    const begins = standing.status === "running" && !isRunning;
    isRunning = standing.status === "running";
    if (begins) {
      isCatchingUp = false;
      const size = { columns: terminal.cols, rows: terminal.rows };
      if (!isReadOnly()) post(`sessions/${session.id}/resize`, size);
    }
    if (!signal.aborted) tell(standing);
  };
  return listen(session, { print, tell: hear, signal });
}
