// One run: its loop over time, its transcript, and what stands behind it, as it is now or as it was at any event of its log.
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { BASE, post } from "../api.js";
import { isReadOnly, notify, now, route } from "../state.js";
import { address, go, setQuery } from "../router.js";
import { useKeys } from "../ui/data.js";
import { useRun } from "../ui/live.js";
import { Answer } from "../ui/answer.js";
import { Asked } from "../ui/asked.js";
import { Fork } from "../ui/fork.js";
import { Acting, Ago, Button, Id, Name, Problem, Skeleton, Status, Waiting, copy } from "../ui/parts.js";
import { Inspector } from "../ui/inspector.js";
import { Split } from "../ui/split.js";
import { Timeline } from "../ui/timeline.js";
import { Transcript } from "../ui/transcript.js";
import { dollars, duration, tokens } from "../model/text.js";
import { answerOf, titleOf } from "../model/outcome.js";
import { lanes, stepOfRound, transcript, used } from "../model/run.js";
import { curl, python, requestOf } from "../model/code.js";

const SPEEDS = [1, 4, 16, 60];

export function Run({ id = route.value.id, embedded = false }) {
  const run = useRun(id);
  if (!run || (run.isLoading && !run.problem)) return html`<${Skeleton} rows=${9} />`;
  if (run.problem) return html`<${Problem} message=${run.problem} />`;
  return html`<${Shown} key=${run.id} run=${run} embedded=${embedded} />`;
}

function Shown({ run, embedded }) {
  const [own, setOwn] = useState({});
  const query = embedded ? own : route.value.query;
  const change = (changed) => (embedded ? setOwn({ ...own, ...changed }) : setQuery(route.value, changed));
  const { log } = run;
  const wanted = query.at === undefined || query.at === "" ? null : Math.max(0, Math.min(log.last, Number(query.at) || 0));
  const cursor = wanted ?? Math.max(0, log.last);
  const isLive = wanted === null;
  const seek = (number) => change({ at: number >= log.last ? "" : String(number) });
  const replay = useReplay({ log, cursor, seek });
  const beat = log.head.isFinal ? 0 : Math.floor(now.value / 1000);
  const shape = useMemo(() => lanes({ ...run, nowMs: Date.now() }), [log, beat, log.rounds.length, run.steps, run.files, run.egress, log.head.isFinal]);
  const step = run.steps.find((each) => each.id === query.step) ?? null;
  const choose = (each) => change({ step: query.step === each?.id ? "" : each?.id, tab: "step" });
  const state = log.at(cursor);
  const rounds = transcript(log, cursor);
  const chosen = step ? (log.rounds.find((round) => stepOfRound(run.steps, round)?.step === step.step)?.number ?? null) : null;
  const answer = log.head.isFinal && isLive ? answerOf(log.head) : null;
  const [isFolded, fold] = useFolded(embedded);
  const [decided, setDecided] = useState([]); // what was answered is gone before the API is asked again
  const asked = run.approvals.filter((each) => !decided.includes(each.id));
  useRunKeys({ run, cursor, seek, replay, embedded });
  return html`<div class="run">
    <${RunHead} run=${run} state=${state} cursor=${cursor} isLive=${isLive} embedded=${embedded} />
    ${asked.length > 0 && isLive && html`<section class="asking" aria-label="Waiting for approval">${asked.map((each) => html`<${Asked} key=${each.id} asked=${each} isHere=${true} done=${() => setDecided([...decided, each.id])} />`)}</section>`}
    ${answer && html`<${Answer} run=${run} answer=${answer} />`}
    <${Transport} log=${log} cursor=${cursor} isLive=${isLive} seek=${seek} replay=${replay} isFolded=${isFolded} onFold=${fold} />
    ${log.last >= 0 && html`<${Timeline} isFolded=${isFolded} lanes=${shape} log=${log} cursor=${cursor} onCursor=${seek} onStep=${choose} steps=${run.steps} range=${query.range ?? ""} onRange=${(range) => change({ range })} />`}
    <${Split} name="run"
      first=${html`<${Transcript} input=${run.input} rounds=${rounds} steps=${run.steps} response=${cursor >= log.last ? (log.head.response ?? run.response) : null} chosen=${chosen}
        onChoose=${(round) => choose(stepOfRound(run.steps, round))} follow=${isLive && !log.head.isFinal} />`}
      second=${html`<${Inspector} run=${run} tab=${query.tab ?? "step"} onTab=${(tab) => change({ tab })} step=${step} cursor=${cursor} onCursor=${seek} onStep=${choose} />`} />
  </div>`;
}

function RunHead({ run, state, cursor, isLive, embedded }) {
  const { log } = run;
  const response = run.response;
  const isRunning = !log.head.isFinal;
  const wait = run.steps.find((step) => step.waiting_for)?.waiting_for;
  const isPaused = wait ? wait.kind === "pause" : typeof response.waiting_for === "string" && !run.approvals.length;
  const shown = isLive ? (isRunning && isPaused ? "paused" : isRunning && run.approvals.length ? "waits" : (log.head.response?.status ?? response.status)) : (state.response?.status ?? "queued");
  const at = log.ats[cursor] ?? now.value;
  const sum = used(run.steps, isLive ? Infinity : at);
  const took = (isLive && isRunning ? now.value : at) - (log.ats[0] ?? now.value);
  const budget = response.budget;
  const title = titleOf(run.input) || "A run without words of a user";
  return html`<header class="run-head">
    <div class="line"><${Status} status=${shown} />${embedded ? html`<a class="run-title" href=${address("runs", run.id)}><${Name}>${title}</${Name}></a>` : html`<h1 class="run-title"><${Name}>${title}</${Name}></h1>`}
      <span class="actions">
        ${isRunning && html`<${Acting}>${isPaused ? html`<${Button} icon="play" onClick=${() => act(run.id, "resume", "It goes on.")}>Resume</${Button}>` : html`<${Button} icon="pause" onClick=${() => act(run.id, "pause", "No further step begins.")}>Pause</${Button}>`}
          <${Button} icon="stop" tone="danger" onClick=${() => act(run.id, "cancel", "It stops.")}>Stop</${Button}></${Acting}>`}
        ${!isRunning && !embedded && !isReadOnly() && html`<${Button} icon="playground" onClick=${() => again(run)}>Run again</${Button}>`}
        ${!embedded && html`<${Acting}><${Fork} run=${run} cursor=${cursor} isLive=${isLive} /></${Acting}>`}
        <span class="actions desk"><${Button} icon="copy" tone="quiet" onClick=${() => copy(python(requestOf(response, run.input), BASE.replace(/\/$/, "")))}>Python</${Button}>
        <${Button} icon="copy" tone="quiet" onClick=${() => copy(curl(requestOf(response, run.input), BASE.replace(/\/$/, "")))}>curl</${Button}></span>
      </span></div>
    <div class="line facts-line"><${Id} id=${run.id} /><span class="muted">${response.model}</span><span class="number">${duration(took)}</span>
      <span class="number" title="Tokens">${tokens(sum.input, sum.output)}</span>${sum.cost !== null && html`<span class="number">${dollars(sum.cost)}</span>`}
      ${budget?.usd && sum.cost !== null && html`<meter min="0" max=${budget.usd} value=${sum.cost} title=${`${dollars(sum.cost)} of ${dollars(budget.usd)}`}></meter>`}
      <span class="muted"><${Ago} at=${response.created_at} /></span><${Lineage} response=${response} containerId=${run.containerId} />
      ${isLive && wait && html`<span class="waits" role="status"><${Waiting} wait=${wait} /></span>`}</div></header>`;
}

// Kept for all runs: who wants to see lanes, or not, wants it again at the next run.
function useFolded(embedded) {
  const key = `moorage.timeline.${embedded ? "playground" : "run"}`;
  const [isFolded, set] = useState((localStorage.getItem(key) ?? (embedded ? "folded" : "open")) === "folded");
  const fold = (next) => {
    localStorage.setItem(key, next ? "folded" : "open");
    set(next);
  };
  return [isFolded, fold];
}

function again(run) {
  sessionStorage.setItem("moorage.again", JSON.stringify(requestOf(run.response, run.input)));
  go("playground", "", { again: run.id });
}

function Lineage({ response, containerId }) {
  return html`${response.forked_from && html`<span class="muted">fork of</span><${Id} id=${response.forked_from.response_id} href=${address("runs", response.forked_from.response_id, { at: response.forked_from.at })} />`}
    ${response.previous_response_id && html`<span class="muted">after</span><${Id} id=${response.previous_response_id} href=${address("runs", response.previous_response_id)} />`}
    ${response.conversation && html`<span class="muted">conversation</span><${Id} id=${response.conversation.id} href=${address("runs", "", { q: `conversation:${response.conversation.id}` })} />`}
    ${response.session_id && html`<span class="muted">session</span><${Id} id=${response.session_id} href=${address("sessions", response.session_id)} />`}
    ${containerId && html`<span class="muted">in</span><${Id} id=${containerId} href=${address("containers", containerId)} />`}`;
}

async function act(id, action, said) {
  const answer = await post(`responses/${encodeURIComponent(id)}/${action}`);
  notify(answer.ok ? said : answer.message, answer.ok ? "note" : "bad");
}

// First, back, replay, forward, live: the log as one would play a recording.
function Transport({ log, cursor, isLive, seek, replay, isFolded, onFold }) {
  const event = log.events[cursor];
  return html`<div class="transport" role="toolbar" aria-label="Replay">
    <${Button} icon="first" tone="quiet" label="To the first event" isOff=${cursor <= 0} onClick=${() => seek(0)} />
    <${Button} icon="back" tone="quiet" label="One event back" isOff=${cursor <= 0} onClick=${() => seek(cursor - 1)} />
    <${Button} icon=${replay.isPlaying ? "pause" : "play"} tone="quiet" label=${replay.isPlaying ? "Stop the replay" : "Replay"} onClick=${replay.toggle} />
    <${Button} icon="forward" tone="quiet" label="One event forward" isOff=${cursor >= log.last} onClick=${() => seek(cursor + 1)} />
    <label class="unseen" for="speed">Speed</label><select id="speed" value=${replay.speed} onChange=${(changed) => replay.setSpeed(Number(changed.target.value))}>${SPEEDS.map((speed) => html`<option key=${speed} value=${speed}>${speed}×</option>`)}</select>
    <span class="muted number at-event">${event ? `event ${event.sequence_number} / ${log.last} · ${event.type.replace("response.", "")}` : "no event yet"}</span>
    <button type="button" class=${`chip ${isLive ? "on" : ""}`} aria-pressed=${isLive} onClick=${() => seek(log.last)}>${log.head.isFinal ? "end" : "live"}</button>
    <${Button} tone="quiet" onClick=${() => onFold(!isFolded)}>${isFolded ? "Show timeline" : "Hide timeline"}</${Button}>
  </div>`;
}

function useReplay({ log, cursor, seek }) {
  const [isPlaying, play] = useState(false);
  const [speed, setSpeed] = useState(1);
  const place = useRef(cursor);
  place.current = cursor;
  useEffect(() => {
    if (!isPlaying) return undefined;
    let ms = log.ats[place.current] ?? 0;
    let shown = performance.now();
    let frame = 0;
    const tick = (time) => {
      const next = log.ats[place.current + 1];
      // Pauses of minutes are no part of a replay: at most a second of each is waited.
      ms = Math.max(ms + (time - shown) * speed, next - 1000 * speed);
      shown = time;
      const number = log.numberAt(ms);
      if (number > place.current) seek(number);
      if (number >= log.last) play(false);
      else frame = requestAnimationFrame(tick);
    };
    frame = requestAnimationFrame(tick);
    return () => cancelAnimationFrame(frame);
  }, [isPlaying, speed, log]);
  const toggle = () => {
    if (!isPlaying && cursor >= log.last) seek(0);
    if (!isPlaying && cursor >= log.last) place.current = 0;
    play(!isPlaying);
  };
  return { isPlaying, toggle, speed, setSpeed };
}

function useRunKeys({ run, cursor, seek, replay, embedded }) {
  useKeys(
    (event) => {
      if (embedded || event.target.closest?.("[role=tablist],[role=separator],dialog")) return;
      const { log } = run;
      const round = (isForward) => {
        const starts = log.rounds.map((each) => each.from);
        return isForward ? (starts.find((start) => start > cursor) ?? log.last) : (starts.filter((start) => start < cursor).at(-1) ?? 0);
      };
      if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
        const isForward = event.key === "ArrowRight";
        seek(event.shiftKey ? round(isForward) : Math.max(0, Math.min(log.last, cursor + (isForward ? 1 : -1))));
      } else if (event.key === " " && !event.target.closest?.("button,a,summary,[role=button]")) replay.toggle();
      else if (event.key === "f") seek(log.last);
      else return;
      event.preventDefault();
    },
  );
}
