// Long lists, of which only what is in sight is in the page.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../html.js";

const BEYOND = 8;

// Rows of one height. `follow` keeps the end in sight as long as the reader is there.
export function Rows({ count, height, row, label, follow = false, focus = null, className = "" }) {
  const box = useRef(null);
  const [seen, look] = useState({ top: 0, size: 600 });
  const atEnd = useRef(true);
  useLayoutEffect(() => {
    const element = box.current;
    const measure = () => {
      atEnd.current = element.scrollHeight - element.scrollTop - element.clientHeight < height * 2;
      look({ top: element.scrollTop, size: element.clientHeight });
    };
    const watcher = new ResizeObserver(measure);
    watcher.observe(element);
    element.addEventListener("scroll", measure, { passive: true });
    return () => {
      watcher.disconnect();
      element.removeEventListener("scroll", measure);
    };
  }, [height]);
  useEffect(() => {
    if (focus === null) {
      if (follow && atEnd.current) box.current.scrollTop = count * height;
      return;
    }
    const { scrollTop, clientHeight } = box.current;
    if (focus * height < scrollTop || (focus + 1) * height > scrollTop + clientHeight) box.current.scrollTop = focus * height - clientHeight / 2;
  }, [count, focus, follow]);
  const first = Math.max(0, Math.floor(seen.top / height) - BEYOND);
  const last = Math.min(count, Math.ceil((seen.top + seen.size) / height) + BEYOND);
  const rows = [];
  for (let at = first; at < last; at += 1) rows.push(html`<div class="vrow" key=${at} style=${{ top: `${at * height}px`, height: `${height}px` }}>${row(at)}</div>`);
  return html`<div class=${`vlist ${className}`} ref=${box} tabindex="0" role="region" aria-label=${label}>
    <div style=${{ height: `${count * height}px` }}>${rows}</div></div>`;
}

// Blocks of unlike height: those far from sight are replaced by their measured height.
export function Block({ children, guess = 160, root }) {
  const place = useRef(null);
  const size = useRef(guess);
  const [isNear, come] = useState(false);
  useEffect(() => {
    const watcher = new IntersectionObserver(
      ([entry]) => {
        if (!entry.isIntersecting && entry.boundingClientRect.height) size.current = entry.boundingClientRect.height;
        come(entry.isIntersecting);
      },
      { root: root?.current ?? null, rootMargin: "600px 0px" },
    );
    watcher.observe(place.current);
    return () => watcher.disconnect();
  }, []);
  return html`<div ref=${place} style=${isNear ? {} : { height: `${size.current}px` }}>${isNear && children}</div>`;
}
