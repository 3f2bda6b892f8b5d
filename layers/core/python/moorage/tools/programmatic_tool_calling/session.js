// What the container's JavaScript session runs: it starts a thread of its own for a program, and prints what the program has come to.
await (async () => {
  const given = $GIVEN;
  const { Worker } = require("worker_threads");
  const told = await new Promise((resolve) => {
    const end = (error) => resolve(JSON.stringify({ made: [], result: "", error }));
    const worker = new Worker(given.thread, {
      eval: true, workerData: given, env: {}, stdout: true, stderr: true,
      resourceLimits: { maxOldGenerationSizeMb: given.memory_mb, maxYoungGenerationSizeMb: 32, codeRangeSizeMb: 32 },
    });
    const timer = setTimeout(() => {
      end(`It took longer than ${given.timeout_ms} ms.`);
      worker.terminate();
    }, given.timeout_ms);
    worker.on("message", resolve);
    worker.on("error", (error) => end(error.code === "ERR_WORKER_OUT_OF_MEMORY" ? "It needs too much memory." : String(error)));
    worker.on("exit", () => {
      clearTimeout(timer);
      end("It has ended itself.");
    });
  });
  process.stdout.write(`\n${given.mark}${told}\n`);
})();
