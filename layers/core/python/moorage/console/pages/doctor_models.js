// Every model, asked side by side. What an answer of now leaves open, its last runs tell.
import { html, useEffect, useState } from "../html.js";
import { call, get, sideBySide } from "../api.js";
import { isReadOnly } from "../state.js";
import { address } from "../router.js";
import { Problem, Skeleton } from "../ui/parts.js";
import { answering } from "../model/models.js";
import { duration, plural } from "../model/text.js";
import { Check, fail, ok, warn } from "./doctor_check.js";

const QUESTION = "Answer with one word: ready.";
const ANSWER_MS_MAX = 120_000; // a local model may have to be loaded first
const MODELS_ASKED_MAX = 100;
const TOGETHER = 4; // browsers open six connections, and the page needs some itself
const RUNS_READ = 3;

export function Models({ round }) {
  const [found, find] = useState(null);
  const [problem, tell] = useState("");
  useEffect(() => {
    const leaving = new AbortController();
    find(null);
    ask(leaving.signal, find, tell);
    return () => leaving.abort();
  }, [round]);
  const asked = isReadOnly() ? "This key looks and changes nothing, so no model was asked." : `Each is asked “${QUESTION}” and has ${ANSWER_MS_MAX / 1000} seconds.`;
  return html`<h2 class="pad-top">Models</h2><p class="muted">${asked} The last ${RUNS_READ} runs of each are read.</p>
    ${problem && html`<${Problem} message=${problem} />`}
    ${found ? html`<ul class="checks" aria-label="Models">${found.map((each, at) => html`<${Check} key=${at} said=${each} />`)}</ul>` : !problem && html`<${Skeleton} rows=${2} />`}`;
}

async function ask(signal, find, tell) {
  const answer = await get("models", {}, signal);
  if (signal.aborted) return;
  tell(answer.ok ? "" : answer.message);
  if (!answer.ok) return;
  const names = answering(answer.data.data).map((model) => model.id);
  const asked = names.slice(0, MODELS_ASKED_MAX);
  const more = names.length - asked.length;
  const rest = more > 0 ? [warn(`${plural(more, "more model")} not asked`, `The first ${asked.length} are.`)] : [];
  find([...asked.map((name) => ({ level: "busy", what: `${name} is asked` })), ...rest]);
  const look = async ([name, at]) => {
    const said = await finding(name, signal);
    if (!signal.aborted) find((before) => before.map((each, index) => (index === at ? said : each)));
  };
  await sideBySide(asked.map((name, at) => [name, at]), look, TOGETHER);
}

async function finding(name, leaving) {
  const asked = isReadOnly() ? warn(`${name} was not asked`) : await answered(name, leaving);
  if (asked.level === "fail") return asked;
  const runs = await get("responses", { model: name, status: "completed,incomplete,failed", limit: RUNS_READ }, leaving);
  const latest = runs.ok ? runs.data.data : [];
  if (!latest.length || latest.some((row) => row.status !== "failed")) return asked;
  const last = latest.length === 1 ? "last run" : `last ${latest.length} runs`;
  return warn(`${asked.what}, but its ${last} failed`, html`<a href=${address("runs", latest[0].id)}>The latest of them</a>`, latest[0].error?.message);
}

async function answered(name, leaving) {
  const began = performance.now();
  const late = AbortSignal.timeout(ANSWER_MS_MAX);
  const answer = await call("POST", "responses", { body: { model: name, input: QUESTION, store: false }, signal: AbortSignal.any([leaving, late]) });
  const no = (detail) => fail(`${name} did not answer`, "Check its key and address: models.toml, MOORAGE_UPSTREAM_URL. 'moorage logs' shows why.", detail);
  if (answer.isAborted) return no(`It said nothing for ${ANSWER_MS_MAX / 1000} seconds.`);
  if (!answer.ok) return no(answer.message);
  const { status, error, incomplete_details: incomplete } = answer.data;
  return status === "completed" ? ok(`${name} answered in ${duration(performance.now() - began)}`) : no(error?.message ?? `It ended as ${status}${incomplete ? `: ${incomplete.reason}` : ""}.`);
}
