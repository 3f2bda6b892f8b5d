// The world of a program: `tools`, `text`, and nothing that differs from run to run.
((given) => {
  "use strict";
  const { tools, recorded, seed, calls_max, arguments_chars_max, result_chars_max } = JSON.parse(given);
  const { parse, stringify } = JSON;
  const made = [];
  const waiting = [];
  let argumentChars = 0;
  let said = "";
  let end = null;

  function shown(value) {
    return typeof value === "string" ? value : value instanceof Error ? String(value) : stringify(value, null, 2) ?? String(value);
  }

  function text(value) {
    said += said.length > result_chars_max ? "" : `${shown(value)}\n`;
  }

  function argumentsOf(name, takesText, value) {
    if (takesText && typeof value === "string") {
      return stringify({ input: value });
    }
    if (value !== undefined && (typeof value !== "object" || value === null || Array.isArray(value))) {
      throw new TypeError(`tools.${name} takes one object${takesText ? ", or a text" : ""}.`);
    }
    return stringify(value ?? {});
  }

  function called(name, takesText, value) {
    const written = argumentsOf(name, takesText, value);
    argumentChars += written.length;
    if (made.length >= calls_max) {
      throw new Error(`A program makes at most ${calls_max} calls.`);
    }
    if (argumentChars > arguments_chars_max) {
      throw new Error(`The arguments of a program's calls have at most ${arguments_chars_max} characters in all.`);
    }
    return new Promise((resolve) => {
      waiting.push({ number: made.length, resolve });
      made.push({ name, arguments: written });
    });
  }

  function random() {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 4294967296;
  }

  let state = seed;
  const RealDate = Date;
  class FixedDate extends RealDate {
    constructor(...parts) {
      if (parts.length === 0) {
        throw new Error("A program has no clock: it may run several times. Take the time from a tool.");
      }
      super(...parts);
    }

    static now() {
      return new FixedDate().getTime();
    }
  }
  const offered = {};
  for (const { name, takes_text } of tools) {
    offered[name] = async (value) => called(name, takes_text, value);
  }
  for (const name of ["WeakRef", "FinalizationRegistry", "SharedArrayBuffer", "Atomics", "WebAssembly"]) {
    delete globalThis[name];
  }
  Math.random = random;
  const log = (...values) => text(values.map(shown).join(" "));
  Object.assign(globalThis, { Date: FixedDate, tools: Object.freeze(offered), text, console: { log, info: log, warn: log, error: log } });

  function told(error) {
    const isCut = said.length > result_chars_max;
    return stringify({ made, result: isCut ? `${said.slice(0, result_chars_max)} …` : said, error });
  }

  function failure(error) {
    const lines = String(error?.stack ?? error).split("\n");
    return lines.filter((line, at) => at === 0 || line.includes("program.js")).slice(0, 5).join("\n").slice(0, 2000);
  }

  return {
    begin(program) {
      program().then(
        (value) => {
          if (value !== undefined) {
            text(value);
          }
          end = { error: null };
        },
        (error) => {
          end = { error: failure(error) };
        },
      );
    },

    settle() {
      if (end !== null) {
        return told(end.error);
      }
      if (waiting.length === 0) {
        return told("It waits for something that never comes.");
      }
      if (waiting.some(({ number }) => number >= recorded.length)) {
        return stringify({ made, is_waiting: true });
      }
      for (const { number, resolve } of waiting.splice(0)) {
        resolve(parse(recorded[number]));
      }
      return "";
    },
  };
})
