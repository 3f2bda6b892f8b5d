// A Node that keeps its variables: the session behind ``PUT /v1/javascript/{id}`` of the exec server.
//
// Started as ``node javascript_session.js REQUESTS_FD ANSWERS_FD``, with the same protocol as python_session.py: each line on the first
// descriptor is the path of a JSON file {"code", "result_chars_max"}; each is answered by one JSON line {"exit_code", "result", "images"}
// on the second. Code is evaluated as Node's own REPL does: bindings stay, and ``await`` works at the top level.
"use strict";

const fs = require("fs");
const readline = require("readline");
const repl = require("repl");
const { PassThrough } = require("stream");
const util = require("util");

const [requests, answers] = process.argv.splice(2).map(Number);
const evaluator = repl.start({ input: new PassThrough(), output: process.stderr, prompt: "", terminal: false, useGlobal: true });

// The REPL evaluates within a domain of its own, which is told of what is thrown, and the callback is not.
let end = null;
for (const [source, name] of [[evaluator._domain, "error"], [process, "uncaughtException"]]) {
  source?.removeAllListeners(name);
  source?.on(name, (error) => (end === null ? tell(error) : end({ failure: [error] })));
}

function run(code) {
  return new Promise((resolve) => {
    end = resolve;
    evaluator.eval(`${code}\n`, evaluator.context, "cell", (error, result) => {
      resolve(error == null ? { result } : { failure: [error instanceof repl.Recoverable ? error.err : error] });
    });
  });
}

function tell(error) {
  process.stderr.write(`Uncaught ${error instanceof Error ? error.stack : util.inspect(error)}\n`);
}

function shown(value, charsMax) {
  const text = util.inspect(value);
  return text.length <= charsMax ? text : `${text.slice(0, charsMax)} …`;
}

async function answer(path) {
  const request = JSON.parse(fs.readFileSync(path, "utf-8"));
  const { failure, result } = await run(request.code);
  end = null;
  if (failure !== undefined) {
    tell(failure[0]);
  }
  const value = result === undefined ? null : shown(result, request.result_chars_max);
  const told = { exit_code: failure === undefined ? 0 : 1, result: value, images: [] };
  fs.writeSync(answers, `${JSON.stringify(told)}\n`);
}

let before = Promise.resolve();
readline.createInterface({ input: fs.createReadStream(null, { fd: requests }) }).on("line", (path) => {
  before = before.then(() => answer(path.trim()));
});
