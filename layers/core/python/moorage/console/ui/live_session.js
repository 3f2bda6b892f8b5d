// All that the page of a session knows, kept up to date: lists for what has been, the session's stream for what comes.
import { useEffect, useRef, useState } from "../html.js";
import { all, get, sideBySide } from "../api.js";
import { listen } from "../sse.js";
import { addItems, empty, hear, turnsOf } from "../model/session.js";

const TURNS_MOST = 300;
const TURNS_OPEN = 10; // of which items are read at once, the latest; those of others when somebody looks
const SUBAGENTS_MOST = 100;
const AT_ONCE = 4;
const ITEMS_MOST = 1000;
const LOOK_MS = 5000;

export function useSession(id) {
  const mine = useRef(null);
  const [, draw] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    const live = { id, ...empty(), opened: new Set(), approvals: [], artifacts: [], environment: null, problem: null, isLoading: true };
    mine.current = live;
    let isDue = false;
    const redraw = () => {
      if (isDue || stop.signal.aborted) return;
      isDue = true;
      const go = () => ((isDue = false), draw((number) => number + 1));
      if (document.hidden) setTimeout(go, 1000);
      else requestAnimationFrame(go);
    };
    live.open = (turn) => open(live, turn, stop.signal).then(redraw);
    live.reload = () => look(live, stop.signal).then(redraw);
    load(live, stop.signal, redraw);
    return () => stop.abort();
  }, [id]);
  return mine.current?.id === id ? { ...mine.current } : null;
}

const pathOf = (live) => `agents/sessions/${encodeURIComponent(live.id)}`;

async function load(live, signal, redraw) {
  const [session, turns] = await Promise.all([get(pathOf(live), {}, signal), all(`${pathOf(live)}/turns`, {}, { most: TURNS_MOST, signal })]);
  if (signal.aborted) return;
  if (!session.ok) {
    Object.assign(live, { problem: session.message, isLoading: false });
    return redraw();
  }
  live.session = session.data;
  for (const turn of turns.ok ? turns.data : []) live.turns.set(turn.id, turn);
  const ordered = turnsOf(live);
  await Promise.all([lanes(live, signal), sideBySide(ordered.slice(-TURNS_OPEN), (turn) => open(live, turn, signal), AT_ONCE), beside(live, signal)]);
  live.isLoading = false;
  redraw();
  // The latest turn is told from its beginning: what has grown by now stands nowhere else.
  live.last = ordered.at(-1)?.id ?? "0";
  let timer = 0;
  const lookSoon = () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      if (!document.hidden) await look(live, signal).then(redraw);
      if (!signal.aborted) lookSoon();
    }, LOOK_MS);
  };
  lookSoon();
  signal.addEventListener("abort", () => clearTimeout(timer));
  return listen(`${pathOf(live)}/events`, {
    query: () => ({ after: live.last }),
    take: (event) => {
      hear(live, event);
      if (event.turn) live.opened.add(event.turn.id);
      redraw();
      if (event.session || (event.turn && event.type !== "agent.session.turn.created")) look(live, signal).then(redraw);
    },
    catchUp: async () => false,
    signal,
  });
}

// The subagents with their turns; what was said in these is read when somebody looks.
async function lanes(live, signal) {
  if (!live.session.agent.multi_agent.enabled) return;
  const found = await all(`${pathOf(live)}/subagents`, { order: "asc" }, { most: SUBAGENTS_MOST, signal });
  if (!found.ok) return;
  for (const each of found.data) live.subagents.set(each.id, each);
  await sideBySide(found.data, async (each) => {
    const turns = await all(`${pathOf(live)}/subagents/${each.id}/turns`, { order: "asc" }, { most: TURNS_MOST, signal });
    for (const turn of turns.ok ? turns.data : []) live.turns.set(turn.id, turn);
  }, AT_ONCE);
}

async function open(live, turn, signal) {
  live.opened.add(turn.id);
  const items = await all(`${pathOf(live)}/turns/${turn.id}/items`, { order: "asc" }, { most: ITEMS_MOST, signal });
  if (items.ok) addItems(live, items.data);
  else live.opened.delete(turn.id);
}

// How it stands: asked for when an event says that something has changed, and now and then.
async function look(live, signal) {
  const [session, turns] = await Promise.all([get(pathOf(live), {}, signal), get(`${pathOf(live)}/turns`, { limit: 2 }, signal)]);
  if (!session.ok || !turns.ok) return;
  live.session = session.data;
  for (const turn of turns.data.data) live.turns.set(turn.id, turn);
  await beside(live, signal);
}

async function beside(live, signal) {
  const { environment, required_actions } = live.session;
  const last = turnsOf(live).at(-1);
  const asks = required_actions.some((action) => action.request_id);
  const [place, artifacts, approvals] = await Promise.all([
    environment.id ? get(`agents/environments/${encodeURIComponent(environment.id)}`, {}, signal) : null,
    environment.id ? all(`${pathOf(live)}/artifacts`, {}, { most: 300, signal }) : null,
    asks && last ? get(`responses/${last.response_ids.at(-1)}/approvals`, {}, signal) : null,
  ]);
  if (place?.ok) live.environment = place.data;
  if (artifacts?.ok) live.artifacts = artifacts.data;
  const wanted = new Set(required_actions.map((action) => action.request_id));
  live.approvals = approvals?.ok ? approvals.data.data.filter((each) => wanted.has(each.id)) : [];
}
