// A program in a context of its own, without modules, timers, network or code that is made from text. Only text passes its border.
//
// It runs until nothing moves any more. If it waits for calls whose results are recorded, it gets all of them at once and goes on: the
// rounds are the same in each run. If it waits for others, they are what it has come to.
"use strict";

const { parentPort, workerData } = require("worker_threads");
const vm = require("vm");

const context = vm.createContext(Object.create(null), { codeGeneration: { strings: false, wasm: false } });
const program = new vm.Script(workerData.inside, { filename: "inside.js" }).runInContext(context)(workerData.given);

function told(error) {
  parentPort.postMessage(JSON.stringify({ made: [], result: "", error }));
}

async function run() {
  program.begin(new vm.Script(`(async () => {\n${workerData.code}\n})`, { filename: "program.js", lineOffset: -1 }).runInContext(context));
  for (;;) {
    await new Promise((goOn) => setImmediate(goOn));
    const state = program.settle();
    if (state !== "") {
      parentPort.postMessage(state);
      return;
    }
  }
}

run().catch((error) => told(String(error)));
