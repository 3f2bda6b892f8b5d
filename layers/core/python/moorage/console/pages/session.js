// A session of an agent: what it came to, what it waits for, its turns over time, what was said in each, and the box for the next message.
import { html, useEffect, useRef, useState } from "../html.js";
import { post, remove } from "../api.js";
import { address, go, setQuery } from "../router.js";
import { isReadOnly, notify, now, route } from "../state.js";
import { useSession } from "../ui/live_session.js";
import { useFollow } from "../ui/follow.js";
import { Asked } from "../ui/asked.js";
import { Command, Item, Outcome, Said } from "../ui/cards.js";
import { Json } from "../ui/json.js";
import { Icon } from "../ui/icons.js";
import { Acting, Ago, Button, Id, META, Name, Problem, Skeleton, Status, Sure } from "../ui/parts.js";
import { Split } from "../ui/split.js";
import { Terminal } from "../ui/terminal.js";
import { Block } from "../ui/virtual.js";
import { answerOf, asCard, isOver, itemsOf, lanesOf, nameOfAgent, questionOf, shownStatus, tookMs, turnsOf } from "../model/session.js";
import { message } from "../model/agents.js";
import { headline } from "../model/outcome.js";
import { Details, contentOf, nameOf, openArtifact } from "./session_details.js";
import { duration, plural, tokens } from "../model/text.js";

// Times of turns are whole seconds.
const lasted = (ms) => (ms < 1000 ? "< 1 s" : duration(ms));

const FILES_SHOWN = 6;
const ITEMS_TOGETHER = 20; // drawn, or not, at once
const WIDE = "(min-width: 901px)"; // as run.css has it
const GAP_SHOWN_MS = 60_000;
const INPUT = "agent.session.input";

export function Session() {
  const live = useSession(route.value.id);
  if (!live || live.isLoading) return html`<${Skeleton} rows=${9} />`;
  if (live.problem) return html`<${Problem} message=${live.problem} />`;
  return html`<${Shown} live=${live} />`;
}

function Shown({ live }) {
  const { query } = route.value;
  const { session } = live;
  const turns = turnsOf(live);
  const last = turns.at(-1);
  const isBusy = Boolean(last && !isOver(last));
  const answer = last && isOver(last) ? answerOf(itemsOf(live, last.id)) : null;
  const choose = (turn) => setQuery(route.value, { turn: query.turn === turn.id ? "" : turn.id });
  return html`<div class="run session-page">
    <${SessionHead} live=${live} turns=${turns} isBusy=${isBusy} />
    <${Actions} live=${live} />
    ${session.status === "failed" && html`<p class="banner" role="alert"><b>Its next turn cannot begin:</b> ${session.error}</p>`}
    ${answer && html`<${Answer} live=${live} turn=${last} answer=${answer} />`}
    ${turns.length > 0 && html`<${Strip} turns=${turns} chosen=${query.turn} onChoose=${choose} />`}
    <${Split} name="session" start=${0.6} first=${html`<${Talk} live=${live} turns=${turns} chosen=${query.turn} isBusy=${isBusy} /><${Say} live=${live} isBusy=${isBusy} />`}
      second=${html`<${Details} live=${live} tab=${query.tab ?? "environment"} />`} /></div>`;
}

const forkAt = (live, turn) => post(`agents/sessions/${encodeURIComponent(live.id)}/fork`, turn ? { turn_id: turn } : {});

const send = (live, events) => post(`agents/sessions/${encodeURIComponent(live.id)}/events`, { events });

function SessionHead({ live, turns, isBusy }) {
  const { session } = live;
  const { agent, usage } = session;
  const title = headline(questionOf(turns.flatMap((turn) => itemsOf(live, turn.id)))) || agent.name || "A session without words of a user";
  const cancel = async () => {
    const answer = await send(live, [{ type: `${INPUT}.cancel` }]);
    notify(answer.ok ? "The turn ends." : answer.message, answer.ok ? "note" : "bad");
  };
  const erase = async () => {
    const answer = await remove(`agents/sessions/${encodeURIComponent(live.id)}`);
    if (!answer.ok) return notify(answer.message, "bad");
    return go("sessions");
  };
  const fork = async () => {
    const answer = await forkAt(live, route.value.query.turn);
    if (!answer.ok) return notify(answer.message, "bad");
    return go("sessions", answer.data.id);
  };
  const chosen = turns.findIndex((turn) => turn.id === route.value.query.turn);
  return html`<header class="run-head"><div class="line"><${Status} status=${shownStatus(session.status)} /><h1 class="run-title"><${Name}>${title}</${Name}></h1>
      <span class="actions"><${Acting}>${turns.some(isOver) && html`<${Button} icon="fork" onClick=${fork}>${chosen < 0 ? "Fork" : `Fork after turn ${chosen + 1}`}</${Button}>`}${isBusy ? html`<${Button} icon="stop" tone="danger" onClick=${cancel}>Cancel the turn</${Button}>` : html`<${Sure} onClick=${erase}>Delete</${Sure}>`}</${Acting}></span></div>
    <div class="line facts-line"><${Id} id=${live.id} /><span class="muted">agent</span>${agent.id.startsWith("agent_") && agent.version ? html`<a href=${address("agents", agent.id, { version: agent.version })}><${Name}>${agent.name || "unnamed"}</${Name}> version ${agent.version}</a>` : html`<span class="muted">of its own</span>`}
      <span class="muted">${agent.model}</span><span class="muted">${plural(turns.length, "turn")}</span>${usage && html`<span class="number" title="Tokens">${tokens(usage.input_tokens, usage.output_tokens)}</span>`}${session.forked_from && html`<span class="muted">fork of</span><${Id} id=${session.forked_from.session_id} href=${address("sessions", session.forked_from.session_id, { turn: session.forked_from.turn_id })} />`}<span class="muted"><${Ago} at=${session.created_at} /></span></div></header>`;
}

// What it waits for, whole: nobody decides on the beginning of a command.
function Actions({ live }) {
  const calls = live.session.required_actions.filter((action) => action.type === "function_call");
  if (!calls.length && !live.approvals.length) return null;
  return html`<section class="asking" aria-label="Waiting for you">${live.approvals.map((each) => html`<${Asked} key=${each.id} asked=${each} done=${live.reload} />`)}${calls.map((call) => html`<${Wanted} key=${call.call_id} live=${live} call=${call} />`)}</section>`;
}

function Wanted({ live, call }) {
  const [text, type] = useState("");
  const give = async (success) => {
    const result = success ? { success, output: text } : { success, error: text || "The function failed." };
    const answer = await send(live, [{ type: `${INPUT}.tool_result`, turn_id: call.turn_id, call_id: call.call_id, ...result }]);
    notify(answer.ok ? "The model reads it." : answer.message, answer.ok ? "note" : "bad");
    if (answer.ok) await live.reload();
  };
  return html`<article class="asked-card" aria-label=${`Result of ${call.name}`}><header class="line"><span class="status warn"><${Icon} name="approvals" size=${13} />waits for a result</span><b><${Name}>${call.name}</${Name}></b></header>
    <${Json} value=${call.arguments} depth=${2} />
    <${Acting}><div class="line"><input type="text" aria-label=${`Result of ${call.name}, ${call.call_id}`} placeholder="result: a text, or JSON" value=${text} onInput=${(event) => type(event.target.value)} />
      <${Button} icon="ok" tone="primary" onClick=${() => give(true)}>Send the result</${Button}><${Button} icon="fail" tone="danger" onClick=${() => give(false)}>It failed</${Button}></div></${Acting}></article>`;
}


function Answer({ live, turn, answer }) {
  const made = live.artifacts.filter((each) => each.turn_id === turn.id);
  return html`<section class="answer" aria-label="Answer" tabindex="0"><h2>Answer</h2><${Said} who="assistant" content=${answer.content} />
    ${made.length > 0 && html`<p class="cited">${made.slice(0, FILES_SHOWN).map((each) => html`<button type="button" class="chip" key=${each.id} onClick=${() => openArtifact(each)}><${Icon} name="files" size=${12} /><${Name}>${nameOf(each)}</${Name}></button>`)}
      ${made.length > FILES_SHOWN && html`<button type="button" class="chip" onClick=${() => setQuery(route.value, { tab: "artifacts", artifact: "" })}>${plural(made.length - FILES_SHOWN, "more artifact")}</button>`}</p>`}</section>`;
}

// The turns in their order, each as wide as it was long, as far as there is room: sessions rest for days, and rest is told in words.
function Strip({ turns, chosen, onChoose }) {
  const box = useRef(null);
  const beat = turns.some((turn) => !isOver(turn)) ? now.value : 0;
  useEffect(() => void (box.current.scrollLeft = box.current.scrollWidth), [turns.length]);
  return html`<ol class="turns" aria-label="Turns" ref=${box}>${turns.map((turn, at) => {
    const before = turns[at - 1]?.completed_at;
    const gap = before ? (turn.created_at - before) * 1000 : 0;
    const took = tookMs(turn, beat);
    return html`${gap >= GAP_SHOWN_MS && html`<li class="muted gap" key=${`${turn.id} gap`}>${duration(gap)} later</li>`}
      <li key=${turn.id} style=${{ flexGrow: Math.max(1, Math.round(Math.log2(1 + took / 1000))) }}><button type="button" class=${`turn-bar ${turn.status}`} aria-pressed=${turn.id === chosen} onClick=${() => onChoose(turn)}
        aria-label=${`Turn ${at + 1}, ${turn.status.replace("_", " ")}, ${lasted(took)}`} title=${`Turn ${at + 1}: ${turn.status.replace("_", " ")}, ${lasted(took)}`}>${at + 1}</button></li>`;
  })}</ol>`;
}

function Talk({ live, turns, chosen, isBusy }) {
  const isGrowing = isBusy && live.session.status !== "requires_action";
  // One that rests is read from its end where the transcript scrolls by itself; where the page does, from its head.
  const { box, content, isBehind, toEnd, letGo } = useFollow(isGrowing || (!chosen && matchMedia(WIDE).matches));
  useEffect(() => {
    if (!chosen) return;
    letGo();
    const turn = live.turns.get(chosen);
    if (turn && !live.opened.has(chosen)) live.open(turn);
    box.current.querySelector(`[data-turn="${chosen}"]`)?.scrollIntoView({ block: "start" });
  }, [chosen]);
  return html`<section class="transcript" ref=${box} tabindex="0" role="region" aria-label="Transcript"><div ref=${content}>
    ${!turns.length && html`<p class="empty">Nothing was said yet. A message begins the first turn.</p>`}
    ${turns.map((turn, at) => html`<${TurnOf} key=${turn.id} live=${live} turn=${turn} number=${at + 1} root=${box} isChosen=${turn.id === chosen} />`)}</div>
    ${isBehind && isGrowing && html`<button type="button" class="pill end" onClick=${toEnd}>↓ Jump to latest</button>`}</section>`;
}

function TurnOf({ live, turn, number, root, isChosen }) {
  const used = turn.usage;
  const isKnown = live.opened.has(turn.id);
  const facts = [isOver(turn) ? `took ${lasted(tookMs(turn, now.value))}` : "", used ? tokens(used.input_tokens, used.output_tokens) : ""].filter(Boolean);
  return html`<article class=${`round ${isChosen ? "chosen" : ""}`} data-turn=${turn.id} aria-label=${`Turn ${number}`}>
    <h2 class="round-head"><span class="line"><b>Turn ${number}</b><${Status} status=${shownStatus(turn.status)} /></span><span class="muted number line">${facts.join(" · ")}${turn.response_ids.map((id, at) => html`<a key=${id} href=${address("runs", id)} title=${id}>${turn.response_ids.length > 1 ? `run ${at + 1}` : "its run"}</a>`)}</span></h2>
    ${isKnown ? together(itemsOf(live, turn.id)).map((some, at) => html`<${Block} key=${at} root=${root} guess=${120 * some.length}>${some.map((entry) => html`<${Entry} key=${entry.item.id} live=${live} entry=${entry} />`)}</${Block}>`) : html`<p><${Button} tone="quiet" onClick=${() => live.open(turn)}>Show what was said</${Button}></p>`}
    ${lanesOf(live, turn).map((lane) => html`<${Lane} key=${lane.id} live=${live} turn=${lane} />`)}
    ${turn.error && html`<section class="card failed" role="alert"><h3><${Status} status="failed" /></h3><p>${turn.error.message}</p><p class="muted"><code>${turn.error.code}</code></p></section>`}
    ${turn.status === "cancelled" && html`<section class="card"><h3><${Status} status="cancelled" /></h3></section>`}</article>`;
}

const together = (entries) => Array.from({ length: Math.ceil(entries.length / ITEMS_TOGETHER) }, (_, at) => entries.slice(at * ITEMS_TOGETHER, (at + 1) * ITEMS_TOGETHER));

// A task of a subagent, closed until somebody looks.
function Lane({ live, turn }) {
  const show = (event) => event.currentTarget.open && !live.opened.has(turn.id) && live.open(turn);
  const used = turn.usage && tokens(turn.usage.input_tokens, turn.usage.output_tokens);
  return html`<details class="card lane" onToggle=${show}><summary class="line"><b><${Name}>${nameOfAgent(live, turn.subagent_id)}</${Name}></b><${Status} status=${shownStatus(turn.status)} />
      <span class="muted number">${[isOver(turn) ? `took ${lasted(tookMs(turn, now.value))}` : "", used].filter(Boolean).join(" · ")}</span></summary>
    ${itemsOf(live, turn.id).map((entry) => html`<${Entry} key=${entry.item.id} live=${live} entry=${entry} />`)}
    ${turn.error && html`<p class="bad">${turn.error.message}</p>`}</details>`;
}

// What agents ask of each other, and say.
const BETWEEN_AGENTS = {
  create_subagent_call: "starts a subagent",
  send_subagent_input_call: "writes to",
  wait_for_subagents_call: "waits for",
  interrupt_subagent_call: "interrupts",
  agent_message: "hears from",
};

function Between({ live, item }) {
  const ids = item.type === "agent_message" ? [item.sender_agent_id] : item.recipient_agent_ids ?? [item.recipient_agent_id].filter(Boolean);
  return html`<section class="card call"><h3>${BETWEEN_AGENTS[item.type]} <${Name}>${ids.map((id) => nameOfAgent(live, id)).join(", ")}</${Name}></h3>
    ${item.content && html`<p class="said plain">${item.content.map((part) => part.text ?? "").join("")}</p>`}${item.status === "failed" && html`<p class="outcome bad">it was refused</p>`}</section>`;
}

function Entry({ live, entry: { item, isDone } }) {
  if (item.type in BETWEEN_AGENTS) return html`<${Between} live=${live} item=${item} />`;
  if (item.type === "command_execution") return html`<${Executed} item=${item} />`;
  if (item.type === "function_call_output" && item.error !== null) return html`<section class="card failed"><h3>the function failed</h3>${typeof item.error === "string" ? html`<p>${item.error}</p>` : html`<${Json} value=${item.error} depth=${2} />`}</section>`;
  return html`<${Item} item=${asCard(item)} mark=${{ commands: [] }} isDone=${isDone} />`;
}

function Executed({ item }) {
  const outcome = item.exit_code === null ? null : { type: "exit", exit_code: item.exit_code };
  return html`<section class="card call"><${Command} text=${item.command} />${item.output && html`<${Terminal} text=${item.output} stream="stdout" label="Output of the command" />`}
    ${item.status === "incomplete" ? html`<p class="outcome bad">it has no end</p>` : item.status === "failed" && outcome === null ? html`<p class="outcome bad">timed out</p>` : html`<${Outcome} outcome=${outcome} />`}</section>`;
}

// A message: it begins a turn, or the running turn takes it before its next model step. A team is not broken off.
function Say({ live, isBusy: isRunning }) {
  const [text, type] = useState("");
  const isTeam = live.session.agent.multi_agent.enabled;
  const isBusy = isRunning && !isTeam;
  const go = async () => {
    const answer = await send(live, [{ type: `${INPUT}.message`, input: [message(text)] }]);
    if (!answer.ok) return notify(answer.message, "bad");
    type("");
    if (isRunning) notify(isTeam ? "It begins the next turn, after this one." : "The running turn takes it before its next model step.");
    return live.reload();
  };
  const press = (event) => event.key === "Enter" && (event.metaKey || event.ctrlKey) && text.trim() && go();
  if (isReadOnly()) return html`<p class="muted say">This key looks and changes nothing.</p>`;
  return html`<div class="say"><textarea rows="2" data-filter aria-label="Message" placeholder=${isBusy ? "A message for the running turn" : "The next message"} value=${text} onInput=${(event) => type(event.target.value)} onKeyDown=${press}></textarea>
    <span class="line"><${Button} tone="primary" icon="play" isOff=${!text.trim()} onClick=${go}>Send</${Button}><kbd>${META} Enter</kbd></span></div>`;
}
