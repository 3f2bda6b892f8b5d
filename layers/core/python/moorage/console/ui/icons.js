// Lines of 24 × 24; drawn here, so that no font and no picture has to be fetched.
import { html } from "../html.js";

const PATHS = {
  runs: "M4 6h16M4 12h10M4 18h13",
  playground: "M5 4l14 8-14 8z",
  containers: "M12 3l8 4.5v9L12 21l-8-4.5v-9zM4 7.5l8 4.5 8-4.5M12 12v9",
  files: "M6 3h8l4 4v14H6zM14 3v4h4",
  skills: "M12 4l2.4 5 5.6.7-4.1 3.8 1.1 5.5-5-2.8L7 19l1.1-5.5L4 9.7 9.6 9z",
  approvals: "M12 3l7 3v5c0 5-3 8-7 10-4-2-7-5-7-10V6zM9 12l2 2 4-4",
  webhooks: "M4 12h6M14 12h6M10 12a2 2 0 1 0 4 0 2 2 0 1 0-4 0M6 6l4 4M14 14l4 4",
  usage: "M4 20V10M10 20V4M16 20v-8M21 20H3",
  keys: "M8 15a4 4 0 1 0 0-.1M11 12l9-9M16 7l3 3",
  doctor: "M3 12h4l3-7 4 14 3-7h4",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  stop: "M6 6h12v12H6z",
  pause: "M8 5v14M16 5v14",
  play: "M7 4l13 8-13 8z",
  live: "M12 12m-3 0a3 3 0 1 0 6 0 3 3 0 1 0-6 0M5 5a10 10 0 0 0 0 14M19 5a10 10 0 0 1 0 14",
  first: "M6 5v14M18 5l-8 7 8 7z",
  back: "M15 5l-7 7 7 7",
  forward: "M9 5l7 7-7 7",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
  upload: "M12 16V5M7 9l5-5 5 5M5 20h14",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 1 0 0-14M16 16l4 4",
  close: "M6 6l12 12M18 6L6 18",
  folder: "M3 6h6l2 2h10v11H3z",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 1 0 0-8M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.5 1.5M17.5 17.5L19 19M5 19l1.5-1.5M17.5 6.5L19 5",
  moon: "M20 14A8 8 0 1 1 10 4a7 7 0 0 0 10 10z",
  screen: "M3 5h18v11H3zM9 20h6",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  plus: "M12 5v14M5 12h14",
  ok: "M5 12l5 5L20 7",
  warn: "M12 4l9 16H3zM12 10v4M12 17h.01",
  fail: "M6 6l12 12M18 6L6 18",
  clock: "M12 4a8 8 0 1 0 0 16 8 8 0 1 0 0-16M12 8v4l3 2",
  fork: "M6 4v8a4 4 0 0 0 4 4h8M6 4v16M15 12l4 4-4 4",
  leave: "M14 4h5v16h-5M4 12h10M10 8l4 4-4 4",
  anchor: "M12 2.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 1 0 0-5M12 7.5V21M5 12H3a9 9 0 0 0 18 0h-2M8 11h8",
};

export const Icon = ({ name, size = 16 }) => html`<svg class="icon" width=${size} height=${size} viewBox="0 0 24 24" aria-hidden="true">
  <path d=${PATHS[name]} /></svg>`;
