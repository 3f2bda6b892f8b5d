// A run as it reads: what was asked, then round by round what the model said, what ran and what came of it.
import { html, useEffect } from "../html.js";
import { dollars, duration, tokens } from "../model/text.js";
import { typed } from "../state.js";
import { isOutput, shortened, stepOfCall, stepOfRound } from "../model/run.js";
import { nameOfRound } from "../model/team.js";
import { Item, Said } from "./cards.js";
import { useFollow } from "./follow.js";
import { Status } from "./parts.js";
import { Block } from "./virtual.js";

export function Transcript({ input, rounds, steps, response, chosen, onChoose, follow }) {
  const { box, content, isBehind, toEnd, letGo } = useFollow(follow);
  const held = new Set(steps.filter((step) => step.waiting_for?.kind === "approval").map((step) => step.call_id));
  const calls = new Map(rounds.flatMap((round) => round.items.filter(({ item }) => item.call_id && !isOutput(item.type)).map(({ item }) => [item.call_id, item])));
  useEffect(() => {
    if (chosen === null) return;
    letGo();
    box.current.querySelector(`[data-round="${chosen}"]`)?.scrollIntoView({ block: "start" });
  }, [chosen]);
  return html`<section class="transcript" ref=${box} tabindex="0" role="region" aria-label="Transcript"><div ref=${content}>
    <h2 class="unseen">Request</h2>
    ${input.map((item, at) => html`<${Input} key=${`in-${at}`} item=${item} />`)}
    ${rounds.map((round) => html`<article class=${`round ${round.number === chosen ? "chosen" : ""}`} key=${round.number} data-round=${round.number} aria-label=${nameOfRound(round)}>
      <${RoundHead} round=${round} step=${stepOfRound(steps, round)} onChoose=${onChoose} />
      <${Block} root=${box} guess=${120 * round.items.length}>${round.items.map(({ mark, item, isDone }) => html`<${Item} key=${mark.index} item=${item} mark=${mark} isDone=${isDone} isHeld=${held.has(item.call_id)} step=${stepOfCall(steps, item.call_id)} call=${calls.get(item.call_id)} runId=${response?.id} before=${item.type === "compaction" ? shortened({ input, rounds, steps, round: round.number, index: mark.index }) : null} />`)}</${Block}>
    </article>`)}
    ${response?.error && html`<section class="card failed" role="alert"><h3><${Status} status="failed" /></h3><p>${typed(response.error.message)}</p><p class="muted"><code>${response.error.code}</code></p></section>`}
    ${response?.status === "incomplete" && html`<section class="card"><h3><${Status} status="incomplete" /></h3><p class="muted">${response.incomplete_details?.reason ?? ""}</p></section>`}
    ${response?.status === "cancelled" && html`<section class="card"><h3><${Status} status="cancelled" /></h3></section>`}</div>
    ${isBehind && html`<button type="button" class="pill end" onClick=${toEnd}>↓ Jump to latest</button>`}
  </section>`;
}

function RoundHead({ round, step, onChoose }) {
  const facts = step
    ? [
        step.first_output_at && step.started_at ? `first token ${duration(step.first_output_at - step.started_at)}` : "",
        step.started_at && step.ended_at ? `took ${duration(step.ended_at - step.started_at)}` : "",
        step.usage ? tokens(step.usage.input_tokens, step.usage.output_tokens) : "",
        dollars(step.cost_usd),
        step.attempts.count > 1 ? `${step.attempts.count} attempts` : "",
      ].filter(Boolean)
    : [];
  return html`<h2 class="round-head"><button type="button" onClick=${() => onChoose(round)}>${nameOfRound(round)}</button><span class="muted number">${facts.join(" · ")}</span></h2>`;
}

function Input({ item }) {
  if ((item.type ?? "message") === "message") return html`<${Said} who=${item.role} content=${item.content} />`;
  return html`<${Item} item=${item} mark=${{ commands: [] }} isDone=${true} />`;
}
