// Asking the API from a page, and asking again.
import { useCallback, useEffect, useRef, useState } from "../html.js";

// `load(signal)` answers as api.js does. With `every`, it is asked again as long as somebody looks.
export function useData(load, deps = [], { every = 0 } = {}) {
  const [state, set] = useState({ data: null, problem: null, isLoading: true, status: 0 });
  const [round, again] = useState(0);
  const last = useRef(0);
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    const ask = async () => {
      const answer = document.hidden && last.current ? null : await load(stop.signal);
      if (stop.signal.aborted) return;
      if (answer && !answer.isAborted) {
        last.current = Date.now();
        set((before) =>
          answer.ok
            ? { data: answer.data, problem: null, isLoading: false, status: answer.status, hasMore: answer.hasMore }
            : { ...before, problem: answer.message, isLoading: false, status: answer.status },
        );
      }
      if (every) timer = setTimeout(ask, every);
    };
    set((before) => ({ ...before, isLoading: before.data === null }));
    ask();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [...deps, round]);
  return { ...state, reload: useCallback(() => again((number) => number + 1), []) };
}

// Calls `handle(event)` for keys that are not typed into a field. The handler is that of the latest drawing, however fast one types.
export function useKeys(handle) {
  const latest = useRef(handle);
  latest.current = handle;
  useEffect(() => {
    const listen = (event) => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      latest.current(event);
    };
    document.addEventListener("keydown", listen);
    return () => document.removeEventListener("keydown", listen);
  }, []);
}

export const isTyping = (target) => target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
