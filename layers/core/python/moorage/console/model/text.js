// Numbers, times and sizes as people read them. No DOM here.

export function duration(ms) {
  if (ms == null || Number.isNaN(ms)) return "";
  const value = Math.max(0, ms);
  if (value < 1000) return `${Math.round(value)} ms`;
  const seconds = Math.floor(value / 1000);
  if (seconds < 10) return `${(value / 1000).toFixed(1)} s`;
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m ${String(seconds % 60).padStart(2, "0")}s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)}h ${String(Math.floor((seconds % 3600) / 60)).padStart(2, "0")}m`;
  return `${Math.floor(seconds / 86400)}d ${String(Math.floor((seconds % 86400) / 3600)).padStart(2, "0")}h`;
}

export function ago(seconds, nowMs) {
  const past = nowMs / 1000 - seconds;
  if (past < 5) return "now";
  if (past < 60) return `${Math.floor(past)} s ago`;
  if (past < 3600) return `${Math.floor(past / 60)} min ago`;
  if (past < 86400) return `${Math.floor(past / 3600)} h ago`;
  return `${Math.floor(past / 86400)} d ago`;
}

export const moment = (ms) => new Date(ms).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });

export const clock = (ms) => {
  const at = new Date(ms);
  return `${[at.getHours(), at.getMinutes(), at.getSeconds()].map((each) => String(each).padStart(2, "0")).join(":")}.${String(at.getMilliseconds()).padStart(3, "0")}`;
};

export function count(value) {
  if (value == null) return "";
  if (value < 10_000) return Math.round(value).toLocaleString("en");
  if (value < 1_000_000) return `${(value / 1000).toFixed(value < 100_000 ? 1 : 0)}k`;
  return `${(value / 1_000_000).toFixed(1)}M`;
}

// 1 kB is 1,000 bytes, as the command line and the limits count them.
export function bytes(value) {
  if (value == null) return "";
  if (value < 1e3) return `${value} B`;
  if (value < 1e6) return `${(value / 1e3).toFixed(1)} kB`;
  if (value < 1e9) return `${(value / 1e6).toFixed(1)} MB`;
  if (value < 1e12) return `${(value / 1e9).toFixed(2)} GB`;
  return `${(value / 1e12).toFixed(2)} TB`;
}

export const tokens = (input, output) => `${count(input)} in · ${count(output)} out`;

export function dollars(value) {
  if (value == null) return "";
  if (value === 0) return "$0";
  if (value < 0.01) return `$${value.toFixed(5)}`;
  return `$${value.toFixed(value < 1 ? 4 : 2)}`;
}

// resp_81c8af…: its kind, and as much as one tells it by.
export function shortId(id) {
  const start = id.search(/[_-]/) + 1;
  return id.length > start + 10 ? `${id.slice(0, start + 6)}…` : id;
}

export const plural = (number, word, words = `${word}s`) => `${number} ${number === 1 ? word : words}`;
