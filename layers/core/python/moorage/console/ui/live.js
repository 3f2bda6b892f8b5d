// All that the page of a run knows, kept up to date: its log as a stream, its steps, files and network beside it.
import { useEffect, useRef, useState } from "../html.js";
import { all, get } from "../api.js";
import { follow } from "../sse.js";
import { Log, containerOf } from "../model/run.js";

const PAGE = 1000;
const BESIDE_MS = 1500;

export function useRun(id) {
  const run = useRef(null);
  const [, draw] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    const mine = { id, log: new Log(), steps: [], files: [], egress: [], sandboxes: [], versions: [], input: [], approvals: [], response: null, containerId: null, problem: null, isLoading: true };
    run.current = mine;
    let isDue = false;
    const redraw = () => {
      if (isDue || stop.signal.aborted) return;
      isDue = true;
      const go = () => ((isDue = false), draw((number) => number + 1));
      if (document.hidden) setTimeout(go, 1000);
      else requestAnimationFrame(go);
    };
    load(mine, stop.signal, redraw);
    return () => stop.abort();
  }, [id]);
  // A copy each time: components with signals in them look at their properties alone to see whether to draw.
  return run.current?.id === id ? { ...run.current } : null;
}

async function load(run, signal, redraw) {
  const path = `responses/${encodeURIComponent(run.id)}`;
  const [response, input] = await Promise.all([get(path, {}, signal), all(`${path}/input_items`, { order: "asc" }, { most: 300, signal })]);
  if (signal.aborted) return;
  if (!response.ok) {
    Object.assign(run, { problem: response.message, isLoading: false });
    return redraw();
  }
  run.response = response.data;
  run.input = input.ok ? input.data : [];
  await history(run, path, signal, redraw);
  run.isLoading = false;
  await beside(run, path, signal);
  redraw();
  if (run.log.head.isFinal || signal.aborted) return undefined;
  const looking = look(run, path, signal, redraw);
  await follow(run.id, {
    last: () => run.log.last,
    take: (event) => {
      run.log.add([{ at: Date.now(), event }]);
      redraw();
    },
    catchUp: async () => {
      await history(run, path, signal, redraw);
      return run.log.head.isFinal;
    },
    signal,
  });
  await looking;
  return undefined;
}

async function history(run, path, signal, redraw) {
  let after = run.log.last < 0 ? null : String(run.log.last);
  do {
    const page = await get(`${path}/events`, { limit: PAGE, order: "asc", after }, signal);
    if (!page.ok) return;
    run.log.add(page.data.data);
    after = page.data.has_more ? page.data.last_id : null;
    if (run.log.last < PAGE) run.isLoading = false;
    redraw();
  } while (after);
}

// What is no part of the log, asked for again as long as the run goes on, and once when it has ended.
async function look(run, path, signal, redraw) {
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, BESIDE_MS));
    if (signal.aborted) return;
    if (document.hidden) continue;
    const hadEnded = run.log.head.isFinal;
    await beside(run, path, signal);
    redraw();
    if (hadEnded) return;
  }
}

async function beside(run, path, signal) {
  run.containerId = containerOf(run.log.head) ?? run.containerId;
  const container = run.containerId && `containers/${encodeURIComponent(run.containerId)}`;
  // What a container has been changes as calls begin and end, and is asked for again then.
  const standing = run.steps.map((step) => step.status).join();
  const isPastDue = container && (run.pastOf !== standing || run.log.head.isFinal);
  const [response, steps, tree, egress, sandboxes, versions] = await Promise.all([
    get(path, { "include[]": "usage.cost" }, signal),
    all(`${path}/steps`, {}, { most: 2000, signal }),
    container ? get(`${container}/tree`, {}, signal) : null,
    container ? all(`${container}/egress`, { order: "asc" }, { most: 500, signal }) : null,
    isPastDue ? all(`${container}/sandboxes`, {}, { signal }) : null,
    isPastDue ? all(`${container}/versions`, {}, { most: 300, signal }) : null,
  ]);
  if (response.ok) run.response = response.data;
  if (steps.ok) run.steps = steps.data;
  if (tree?.ok) run.files = tree.data.data.filter((entry) => entry.type === "file");
  const isAsking = !run.log.head.isFinal && (run.steps.some((step) => step.waiting_for?.kind === "approval") || run.approvals.length > 0);
  const approvals = isAsking ? await get(`${path}/approvals`, {}, signal) : null;
  run.approvals = approvals?.ok ? approvals.data.data.filter((each) => each.status === "waiting") : [];
  if (sandboxes?.ok && versions?.ok) Object.assign(run, { sandboxes: sandboxes.data, versions: versions.data, pastOf: standing });
  const begun = (run.response?.created_at ?? 0) - 1;
  if (egress?.ok) run.egress = egress.data.filter((entry) => entry.created_at >= begun);
}
