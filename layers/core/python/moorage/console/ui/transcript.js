// A run as it reads: what was asked, then round by round what the model said, what ran and what came of it.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../html.js";
import { count, dollars, duration } from "../model/text.js";
import { shortened, stepOfRound } from "../model/run.js";
import { Item, Said } from "./cards.js";
import { Status } from "./parts.js";
import { Block } from "./virtual.js";

export function Transcript({ input, rounds, steps, response, chosen, onChoose, follow }) {
  const box = useRef(null);
  const [isBehind, fallBehind] = useState(false);
  const atEnd = useRef(follow);
  // What was scrolled may be gone from the page by the time it is told.
  const look = ({ currentTarget: element }) => {
    atEnd.current = element.scrollHeight - element.scrollTop - element.clientHeight < 80;
    if (atEnd.current) fallBehind(false);
  };
  const size = rounds.length + (rounds.at(-1)?.items.length ?? 0) / 100;
  useLayoutEffect(() => {
    if (!follow) return;
    if (atEnd.current) box.current.scrollTop = box.current.scrollHeight;
    else fallBehind(true);
  });
  useEffect(() => {
    if (chosen === null) return;
    box.current.querySelector(`[data-round="${chosen}"]`)?.scrollIntoView({ block: "start" });
  }, [chosen]);
  const toEnd = () => {
    box.current.scrollTop = box.current.scrollHeight;
    fallBehind(false);
  };
  return html`<section class="transcript" ref=${box} onScroll=${look} tabindex="0" role="region" aria-label="Transcript" data-size=${size}>
    <h2 class="unseen">What was asked</h2>
    ${input.map((item, at) => html`<${Input} key=${`in-${at}`} item=${item} />`)}
    ${rounds.map((round) => html`<article class=${`round ${round.number === chosen ? "chosen" : ""}`} key=${round.number} data-round=${round.number} aria-label=${`Round ${round.number + 1}`}>
      <${RoundHead} round=${round} step=${stepOfRound(steps, round.number)} onChoose=${onChoose} />
      <${Block} root=${box} guess=${120 * round.items.length}>${round.items.map(({ mark, item, isDone }) => html`<${Item} key=${mark.index} item=${item} mark=${mark} isDone=${isDone} before=${item.type === "compaction" ? shortened({ input, rounds, steps, round: round.number, index: mark.index }) : null} />`)}</${Block}>
    </article>`)}
    ${response?.error && html`<section class="card failed" role="alert"><h3><${Status} status="failed" /></h3><p>${response.error.message}</p><p class="muted"><code>${response.error.code}</code></p></section>`}
    ${response?.status === "incomplete" && html`<section class="card"><h3><${Status} status="incomplete" /></h3><p class="muted">${response.incomplete_details?.reason ?? ""}</p></section>`}
    ${response?.status === "cancelled" && html`<section class="card"><h3><${Status} status="cancelled" /></h3></section>`}
    ${isBehind && html`<button type="button" class="pill end" onClick=${toEnd}>↓ It goes on below</button>`}
  </section>`;
}

function RoundHead({ round, step, onChoose }) {
  const facts = step
    ? [
        step.first_output_at && step.started_at ? `first words ${duration(step.first_output_at - step.started_at)}` : "",
        step.started_at && step.ended_at ? duration(step.ended_at - step.started_at) : "",
        step.usage ? `${count(step.usage.input_tokens)} / ${count(step.usage.output_tokens)}` : "",
        dollars(step.cost_usd),
        step.attempts.count > 1 ? `${step.attempts.count} runs` : "",
      ].filter(Boolean)
    : [];
  return html`<h2 class="round-head"><button type="button" onClick=${() => onChoose(round)}>Round ${round.number + 1}</button><span class="muted number">${facts.join(" · ")}</span></h2>`;
}

function Input({ item }) {
  if ((item.type ?? "message") === "message") return html`<${Said} who=${item.role} content=${item.content} />`;
  return html`<${Item} item=${item} mark=${{ commands: [] }} isDone=${true} />`;
}
