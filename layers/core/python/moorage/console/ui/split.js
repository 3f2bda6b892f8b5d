// Two panes and a divider between them, which is dragged or moved by keys, and remembered.
import { html, useRef, useState } from "../html.js";

const LEAST = 0.2;

export function Split({ name, first, second, start = 0.62 }) {
  const key = `moorage.split.${name}`;
  const box = useRef(null);
  const [share, setShare] = useState(Number(localStorage.getItem(key)) || start);
  const move = (next) => {
    const kept = Math.min(1 - LEAST, Math.max(LEAST, next));
    setShare(kept);
    localStorage.setItem(key, String(kept));
  };
  const drag = (event) => {
    if (event.type === "pointerdown") event.currentTarget.setPointerCapture(event.pointerId);
    else if (event.buttons !== 1) return;
    const { left, width } = box.current.getBoundingClientRect();
    move((event.clientX - left) / width);
  };
  const press = (event) => {
    const step = { ArrowLeft: -0.03, ArrowRight: 0.03 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    move(share + step);
  };
  return html`<div class="split" ref=${box} style=${{ "--share": `${share * 100}%` }}>
    <div class="pane">${first}</div>
    <div class="divider" role="separator" tabindex="0" aria-orientation="vertical" aria-label="Width of the transcript" aria-valuenow=${Math.round(share * 100)} aria-valuemin="20" aria-valuemax="80"
      onPointerDown=${drag} onPointerMove=${drag} onKeyDown=${press}></div>
    <div class="pane">${second}</div></div>`;
}
