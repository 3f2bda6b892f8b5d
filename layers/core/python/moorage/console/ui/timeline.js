// The loop, unrolled: lanes over time, and one cursor, which is a number of the log.
import { html, useEffect, useRef, useState } from "../html.js";
import { dollars, duration, plural, tokens } from "../model/text.js";
import { within } from "../model/run.js";
import { Button } from "./parts.js";
import { useWidth } from "./width.js";

const GUTTER = 64;
const ROW = 14;
const BARS_MAX = 300;
const NARROWEST_MS = 20;
const AGENTS_MAX = 12;
const LABEL_CHARS = 9;
const WIDTH_MIN = 200; // in pixels

export function Timeline({ isFolded, lanes, log, cursor, onCursor, onStep, steps, range, onRange }) {
  const box = useRef(null);
  const width = useWidth(box, WIDTH_MIN);
  const [view, setView] = useState(null); // [from, to] in ms, or all of it
  const [from, to] = view ?? [lanes.from, lanes.to];
  const inner = width - GUTTER - 8;
  const x = (ms) => GUTTER + Math.min(1, Math.max(0, (ms - from) / (to - from))) * inner;
  const moment = (event) => from + ((event.clientX - box.current.getBoundingClientRect().left - GUTTER) / inner) * (to - from);
  useWheel(box, (event) => {
    const at = moment(event);
    const factor = event.deltaY > 0 ? 1.25 : 0.8;
    zoom(at, factor);
  }, [from, to, inner]);
  const zoom = (at, factor) => {
    const next = [Math.max(lanes.from, at - (at - from) * factor), Math.min(lanes.to, at + (to - at) * factor)];
    if (next[1] - next[0] < NARROWEST_MS) return;
    setView(next[1] - next[0] >= (lanes.to - lanes.from) * 0.999 ? null : next);
  };
  const scrub = (event) => onCursor(log.numberAt(moment(event)));
  const brush = useRef(null); // where a range was begun, while it is drawn
  const measure = (one, other) => onRange([one, other].sort((a, b) => a - b).map((ms) => Math.round(Math.max(lanes.from, Math.min(lanes.to, ms)) - lanes.from)).join("-"));
  const drag = (event) => {
    if (event.button !== 0 || (!event.shiftKey && event.target.closest("[data-bar]"))) return;
    event.currentTarget.setPointerCapture(event.pointerId);
    brush.current = event.shiftKey ? moment(event) : null;
    if (brush.current === null) scrub(event);
  };
  const draw = (event) => {
    if (event.buttons !== 1 || !event.currentTarget.hasPointerCapture(event.pointerId)) return;
    if (brush.current === null) scrub(event);
    else measure(brush.current, moment(event));
  };
  const bounds = /^\d+-\d+$/.test(range) ? range.split("-").map((ms) => lanes.from + Number(ms)) : null;
  const depth = Math.min(lanes.depth, 6);
  const { tops, height } = placed(lanes, depth);
  const at = log.ats[Math.min(cursor, log.last)] ?? lanes.to;
  const event = log.events[Math.min(cursor, log.last)];
  const said = event ? `event ${event.sequence_number} of ${log.last}, ${event.type.replace("response.", "")}, after ${duration(at - lanes.from)}` : "";
  const press = keys({ lanes, log, cursor, onCursor, at, zoom, measure, bounds });
  const seen = (bar) => bar.to >= from && (bar.wait ?? bar.from) <= to;
  return html`<div class=${`timeline ${isFolded ? "folded" : ""}`} ref=${box}>
    <svg width=${width} height=${height} onPointerDown=${drag} onPointerMove=${draw}
      onDblClick=${() => setView(null)} role="group" aria-label="Timeline">
      <${Axis} from=${from} to=${to} x=${x} height=${height} begin=${lanes.from} />
      ${Object.entries(LANES).filter(([lane]) => lane in tops).map(([lane, name]) => html`<text key=${lane} class="lane" x="0" y=${tops[lane] + 10}>${lane === "spent" && !isPriced(lanes.spent) ? "tokens" : name}</text>`)}
      ${lanes.rounds.filter((round) => round.at >= from && round.at <= to).slice(0, BARS_MAX).map((round) => html`<line key=${round.number} class="round-line" x1=${x(round.at)} x2=${x(round.at)} y1=${tops.rounds} y2=${height - 4} />`)}
      ${"agents" in tops && html`<${Team} lanes=${lanes} top=${tops.agents} seen=${seen} x=${x} cut=${at} from=${from} to=${to} onStep=${onStep} onCursor=${onCursor} />`}
      ${"model" in tops && lanes.model.filter(seen).slice(0, BARS_MAX).map((bar, key) => html`<${Bar} key=${`m${key}`} bar=${bar} y=${tops.model} x=${x} cut=${at} onStep=${onStep} />`)}
      ${"tools" in tops && lanes.tools.filter((bar) => seen(bar) && bar.row < depth).slice(0, BARS_MAX).map((bar, key) => html`<${Bar} key=${`t${key}`} bar=${bar} y=${tops.tools + bar.row * ROW} x=${x} cut=${at} onStep=${onStep} />`)}
      ${"container" in tops && lanes.container.filter(seen).slice(-BARS_MAX).map((bar) => html`<${Life} key=${bar.life.id} bar=${bar} y=${tops.container} x=${x} cut=${at} from=${from} to=${to} />`)}
      ${"container" in tops && lanes.saved.filter((tick) => tick.at >= from && tick.at <= to).slice(-BARS_MAX).map((tick) => html`<${Tick} key=${tick.version.id} x=${x(tick.at)} y=${tops.container - 1} tone="accent" shape="diamond" title=${`files saved: ${plural(tick.version.change_count, "change")}, ${plural(tick.version.files, "file")} then`} isDim=${tick.at > at} />`)}
      ${"egress" in tops && lanes.egress.filter((tick) => tick.at >= from - 1000 && tick.at <= to).slice(-BARS_MAX).map((tick) => html`<${Tick} key=${tick.entry.id} x=${x(Math.max(from, tick.at))} y=${tops.egress} tone=${tick.entry.decision === "allowed" ? "good" : "bad"}
        shape=${tick.entry.decision !== "allowed" ? "cross" : tick.entry.secrets.length ? "key" : "dot"} title=${`${tick.entry.decision} ${tick.entry.host ?? ""}${tick.entry.secrets.length ? ", with a secret" : ""}`} isDim=${tick.at > at} />`)}
      ${"files" in tops && lanes.files.filter((tick) => tick.at >= from - 1000 && tick.at <= to).slice(-BARS_MAX).map((tick) => html`<${Tick} key=${tick.file.id} x=${x(Math.max(from, tick.at))} y=${tops.files} tone="accent" shape="square" title=${tick.file.path} isDim=${tick.at > at} />`)}
      ${"spent" in tops && html`<${Curve} points=${lanes.spent} x=${x} top=${tops.spent} from=${lanes.from} to=${to} />`}
      ${bounds && html`<rect class="window" x=${x(bounds[0])} width=${Math.max(1, x(bounds[1]) - x(bounds[0]))} y="12" height=${height - 14} />`}
      <line class="cursor" x1=${x(at)} x2=${x(at)} y1="10" y2=${height - 2} />
    </svg>
    <div class="handle" role="slider" tabindex="0" aria-label="Moment of the run" aria-valuemin="0" aria-valuemax=${Math.max(0, log.last)} aria-valuenow=${Math.min(cursor, log.last)} aria-valuetext=${said}
      onKeyDown=${press} style=${{ left: `${Math.min(width - 6, Math.max(GUTTER - 6, x(at) - 6))}px` }}></div>
    ${bounds && html`<${Range} bounds=${bounds} lanes=${lanes} steps=${steps} onFit=${() => bounds[1] - bounds[0] >= NARROWEST_MS && setView(bounds)} onClear=${() => onRange("")} />`}
    <${Map} lanes=${lanes} view=${view} setView=${setView} width=${width} at=${at} />
  </div>`;
}

const LANES = { model: "model", tools: "tools", container: "sandbox", egress: "network", files: "files", spent: "cost" };
const HEIGHTS = { container: 20, egress: 16, files: 18, spent: 26 };

// Where each lane begins. One with nothing in it takes no room.
function placed(lanes, depth) {
  const tops = lanes.agents.length ? { rounds: 14, agents: 30 } : { rounds: 14, model: 30 };
  let top = lanes.agents.length ? 36 + Math.min(lanes.agents.length, AGENTS_MAX + 1) * ROW : 50;
  if (lanes.tools.length && !lanes.agents.length) {
    tops.tools = top;
    top += depth * ROW + 4;
  }
  for (const [lane, height] of Object.entries(HEIGHTS)) {
    if (lane === "spent" && !lanes.spent.at(-1)?.tokens) continue;
    if (!lanes[lane].length && !(lane === "container" && lanes.saved.length)) continue;
    tops[lane] = top;
    top += height;
  }
  return { tops, height: top };
}

// What the keys at the cursor do: move it, see more or less around it, and measure from it to an end of the range.
function keys({ lanes, log, cursor, onCursor, at, zoom, measure, bounds }) {
  const round = (step) => lanes.rounds.filter((each) => (step > 0 ? each.seq > cursor : each.seq < cursor)).at(step > 0 ? 0 : -1)?.seq ?? (step > 0 ? log.last : 0);
  const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -100, PageDown: 100 };
  return (pressed) => {
    if (pressed.key in moves) onCursor(pressed.shiftKey ? round(moves[pressed.key]) : Math.max(0, Math.min(log.last, cursor + moves[pressed.key])));
    else if (pressed.key === "Home") onCursor(0);
    else if (pressed.key === "End") onCursor(log.last);
    else if (pressed.key === "+" || pressed.key === "=") zoom(at, 0.7);
    else if (pressed.key === "-") zoom(at, 1.4);
    else if (pressed.key === "[") measure(at, Math.max(at, bounds?.[1] ?? lanes.to));
    else if (pressed.key === "]") measure(Math.min(at, bounds?.[0] ?? lanes.from), at);
    else return;
    pressed.preventDefault();
    pressed.stopPropagation();
  };
}

// What a part of the run took and cost.
function Range({ bounds, lanes, steps, onFit, onClear }) {
  const [from, to] = bounds;
  const sum = within(steps, from, to);
  const facts = [
    `${duration(from - lanes.from)} to ${duration(to - lanes.from)}`,
    duration(sum.ms),
    plural(sum.models, "model step"),
    plural(sum.tools, "call"),
    tokens(sum.input, sum.output),
    dollars(sum.cost),
  ];
  return html`<p class="range line" role="status" aria-label="Range"><b>Range</b><span class="number">${facts.filter(Boolean).join(" · ")}</span>
    <${Button} tone="quiet" onClick=${onFit}>Zoom in</${Button}><${Button} tone="quiet" onClick=${onClear}>Clear</${Button}></p>`;
}

// Wheel events have to be listened to actively, so that the page does not scroll away.
function useWheel(box, handle, deps) {
  useEffect(() => {
    const element = box.current.querySelector("svg");
    const listen = (event) => {
      if (!event.ctrlKey && !event.shiftKey && Math.abs(event.deltaX) > Math.abs(event.deltaY)) return;
      event.preventDefault();
      handle(event);
    };
    element.addEventListener("wheel", listen, { passive: false });
    return () => element.removeEventListener("wheel", listen);
  }, deps);
}

function Bar({ bar, y, x, cut, onStep }) {
  const piece = (from, to, tone) => {
    const width = Math.max(tone === "wait" ? 0 : 2, x(to) - x(from));
    return width > 0 && html`<rect class=${`bar ${tone} ${from > cut ? "dim" : ""}`} x=${x(from)} y=${y} width=${width} height=${ROW - 3} rx="2" />`;
  };
  const took = duration(bar.to - bar.from);
  const runs = bar.step?.attempts.count > 1 ? `, ${bar.step.attempts.count} runs: ${bar.step.attempts.why ?? ""}` : "";
  const title = `${bar.label}: ${took}${bar.exit ? `, exit ${bar.exit}` : ""}${runs}`;
  const press = (event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), event.stopPropagation(), onStep(bar.step));
  const end = x(bar.to);
  return html`<g data-bar role="button" tabindex=${bar.step ? 0 : -1} aria-label=${title} onClick=${() => bar.step && onStep(bar.step)} onKeyDown=${press}>
    <title>${title}</title>
    ${piece(bar.wait, bar.from, "wait")}${piece(bar.from, bar.first, `${bar.kind} early`)}${piece(Math.max(bar.from, bar.first), bar.to, `${bar.kind} ${bar.isBad ? "bad" : ""} ${bar.isOpen ? "open" : ""}`)}
    ${bar.step?.attempts.lost > 0 && html`<path class="break" d=${`M${x(bar.from) + 4} ${y - 2}l3 5l-4 3l3 6`} />`}
    ${bar.exit && end - x(bar.from) > 46 && html`<text class="exit" aria-hidden="true" x=${end - 4} y=${y + 9}>${bar.exit === "timeout" ? "timeout" : `exit ${bar.exit}`}</text>`}
  </g>`;
}

// The agents of a team, each with its steps and calls, and the messages that they have read.
function Team({ lanes, top, seen, x, cut, from, to, onStep, onCursor }) {
  const shown = lanes.agents.slice(0, AGENTS_MAX);
  const places = Object.fromEntries(shown.map((agent, at) => [agent.name, top + at * ROW]));
  const messages = lanes.messages.filter((each) => each.at >= from && each.at <= to && each.author in places && each.agent in places);
  return html`${shown.map((agent) => html`<g key=${agent.name} role="group" aria-label=${`Agent ${agent.name}: ${[tokens(agent.input, agent.output), dollars(agent.cost)].filter(Boolean).join(", ")}`}>
      <text class="lane" x="0" y=${places[agent.name] + 10}>${short(agent.name)}<title>${agent.name}</title></text>
      ${agent.bars.filter(seen).slice(0, BARS_MAX).map((bar, key) => html`<${Bar} key=${key} bar=${bar} y=${places[agent.name]} x=${x} cut=${cut} onStep=${onStep} />`)}</g>`)}
    ${messages.slice(-BARS_MAX).map((each) => html`<${Arrow} key=${each.index} message=${each} x=${x(each.at)} y=${places[each.author] + 5} end=${places[each.agent] + 5} isDim=${each.at > cut} onCursor=${onCursor} />`)}
    ${lanes.agents.length > AGENTS_MAX && html`<text class="lane" x="0" y=${top + AGENTS_MAX * ROW + 6}>+${lanes.agents.length - AGENTS_MAX}</text>`}`;
}

// The last word of an agent's name, as long as there is room.
const short = (name) => {
  const word = name.split("/").at(-1);
  return word.length > LABEL_CHARS ? `${word.slice(0, LABEL_CHARS - 1)}…` : word;
};

function Arrow({ message, x, y, end, isDim, onCursor }) {
  const way = end > y ? 1 : -1;
  const title = `message of ${message.author} to ${message.agent}`;
  return html`<g data-bar role="button" tabindex="0" aria-label=${title} class=${`message ${isDim ? "dim" : ""}`} onClick=${() => onCursor(message.seq)}
    onKeyDown=${(event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), event.stopPropagation(), onCursor(message.seq))}><title>${title}</title>
    <path d=${`M${x} ${y}V${end}m-3 ${-5 * way}l3 ${5 * way}l3 ${-5 * way}`} /></g>`;
}

// A sandbox: light while it starts, with a cross where it was lost.
function Life({ bar, y, x, cut, from, to }) {
  const [wait, start, end] = [bar.wait, bar.from, bar.to].map((ms) => x(Math.min(to, Math.max(from, ms))));
  const isSeen = bar.isBad && bar.to >= from && bar.to <= to;
  return html`<g role="img" tabindex="0" aria-label=${bar.label} class=${`life ${bar.from > cut ? "dim" : ""}`}><title>${bar.label}</title>
    ${start > wait && html`<rect class="bar box early" x=${wait} y=${y + 2} width=${start - wait} height="7" rx="2" />`}
    <rect class=${`bar box ${bar.isOpen ? "open" : ""}`} x=${start} y=${y + 2} width=${Math.max(2, end - start)} height="7" rx="2" />
    ${isSeen && html`<path class="tick bad" d=${`M${end - 3} ${y + 2}l6 6M${end + 3} ${y + 2}l-6 6`} />`}</g>`;
}

function Tick({ x, y, tone, shape, title, isDim }) {
  const paths = { key: `M${x - 4} ${y + 6}a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0 -5 0M${x + 1} ${y + 6}h5v3`, dot: `M${x - 3} ${y + 6}a3 3 0 1 0 6 0a3 3 0 1 0 -6 0`, cross: `M${x - 3} ${y + 3}l6 6M${x + 3} ${y + 3}l-6 6`, square: `M${x - 3} ${y + 3}h6v6h-6z`, diamond: `M${x} ${y + 2}l4 4l-4 4l-4 -4z` };
  return html`<path class=${`tick ${tone} ${shape} ${isDim ? "dim" : ""}`} d=${paths[shape]}><title>${title}</title></path>`;
}

// Without a price, or with one of zero, the curve is of tokens.
const isPriced = (points) => points.at(-1).cost > 0;

function Curve({ points, x, top, from, to }) {
  if (!points.length) return null;
  const value = (point) => (isPriced(points) ? point.cost : point.tokens);
  const most = value(points.at(-1)) || 1;
  const y = (point) => top + 18 - (value(point) / most) * 16;
  let path = `M${x(from)} ${top + 18}`;
  for (const point of points.slice(-BARS_MAX)) path += `H${x(point.at)}V${y(point)}`;
  return html`<path class="curve" d=${`${path}H${x(to)}`}><title>${isPriced(points) ? dollars(points.at(-1).cost) : `${points.at(-1).tokens} tokens`}</title></path>`;
}

function Axis({ from, to, x, height, begin }) {
  const span = to - from;
  const steps = [10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 300_000, 600_000, 3_600_000, 21_600_000, 86_400_000];
  const step = steps.find((each) => span / each <= 8) ?? Math.ceil(span / 8 / 86_400_000) * 86_400_000;
  const marks = [];
  for (let at = Math.ceil((from - begin) / step) * step; at <= to - begin; at += step) marks.push(at);
  return marks.map((at) => html`<g key=${at}><line class="axis" x1=${x(begin + at)} x2=${x(begin + at)} y1="12" y2=${height} />${x(begin + at) < x(to) - 24 && html`<text class="axis-text" x=${x(begin + at) + 3} y="9">${at === 0 ? "0" : duration(at)}</text>`}</g>`);
}

// All of the run, and which part of it is above. Where that is all of it, a part is chosen by drawing over it; else it is moved.
function Map({ lanes, view, setView, width, at }) {
  const begun = useRef(null); // where a part was begun, while it is drawn
  const inner = width - GUTTER - 8;
  const x = (ms) => GUTTER + ((ms - lanes.from) / (lanes.to - lanes.from)) * inner;
  const choose = (event) => {
    const isDown = event.type === "pointerdown";
    if (!isDown && event.buttons !== 1) return;
    const place = (event.clientX - event.currentTarget.getBoundingClientRect().left - GUTTER) / inner;
    const ms = lanes.from + Math.max(0, Math.min(1, place)) * (lanes.to - lanes.from);
    if (isDown) {
      event.currentTarget.setPointerCapture(event.pointerId);
      begun.current = view ? null : ms;
    }
    if (begun.current !== null) {
      const drawn = [begun.current, ms].sort((one, other) => one - other);
      if (drawn[1] - drawn[0] >= NARROWEST_MS) setView(drawn);
    } else if (view) {
      const half = (view[1] - view[0]) / 2;
      const middle = Math.max(lanes.from + half, Math.min(lanes.to - half, ms));
      setView([middle - half, middle + half]);
    }
  };
  const [first, last] = view ?? [lanes.from, lanes.to];
  const bars = (some, y) => some.slice(0, BARS_MAX).map((bar) => `M${x(bar.from)} ${y}h${Math.max(1, x(bar.to) - x(bar.from))}v5h-${Math.max(1, x(bar.to) - x(bar.from))}z`).join("");
  return html`<svg class="map" width=${width} height="18" onPointerDown=${choose} onPointerMove=${choose} onDblClick=${() => setView(null)} aria-hidden="true">
    ${[["model", lanes.model, 3], ["tool", lanes.tools, 10]].map(([name, all, y]) => html`<path key=${name} class=${`bar ${name}`} d=${bars(all.filter((bar) => !bar.isBad), y)} /><path key=${`${name} bad`} class=${`bar ${name} bad`} d=${bars(all.filter((bar) => bar.isBad), y)} />`)}
    <rect class="window" x=${x(first)} width=${Math.max(4, x(last) - x(first))} y="1" height="16" rx="3" /><line class="cursor" x1=${x(at)} x2=${x(at)} y1="0" y2="18" />
  </svg>`;
}
