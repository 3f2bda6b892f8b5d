// What became of a run's files between two moments: which came, went and changed.
import { get } from "../api.js";

// A response as of an event. Whoever drags the cursor asks for the last of its places alone.
export const asOf = (id, at, signal) => new Promise((resolve) => setTimeout(() => resolve(signal.aborted ? { ok: false, isAborted: true } : get(`responses/${encodeURIComponent(id)}`, { at }, signal)), 200));

// [{ path, state, file, was }] of two lists of files; what stayed as it was is none of it.
export function changed(before, after) {
  const earlier = new Map(before.map((file) => [file.path, file]));
  const later = new Map(after.map((file) => [file.path, file]));
  return [...new Set([...earlier.keys(), ...later.keys()])].sort().flatMap((path) => {
    const [was, file] = [earlier.get(path), later.get(path)];
    if (was && file) return was.sha256 === file.sha256 ? [] : [{ path, state: "changed", file, was }];
    return [{ path, state: file ? "new" : "gone", file, was }];
  });
}
