// @openai/agents: a function tool, a stream, the hosted shell, a shell that runs here, apply_patch, and a remote server.
import { execSync } from "node:child_process";
import OpenAI from "openai";
import { Agent, OpenAIResponsesModel, applyDiff, applyPatchTool, hostedMcpTool, run, setTracingDisabled, shellTool, tool } from "@openai/agents";
import { z } from "zod";
import { MODEL, call, expect, say, script, shell } from "./moorage_script.mjs";

setTracingDisabled(true);
const model = new OpenAIResponsesModel(new OpenAI({ maxRetries: 0 }), MODEL);
const agent = (...tools) => new Agent({ name: "tester", instructions: "Do it.", model, tools });
const weather = tool({ name: "get_weather", description: "The weather.", parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => `rain in ${city}` });
const words = script(call("get_weather", { city: "Bergen" }), say("It says: {{output}}"));
expect((await run(agent(weather), words)).finalOutput, "It says: rain in Bergen");

const streamed = await run(agent(weather), words, { stream: true });
for await (const _ of streamed);
await streamed.completed;
expect(streamed.finalOutput, "It says: rain in Bergen");

const hosted = shellTool({ environment: { type: "container_auto" } });
expect((await run(agent(hosted), script(shell("echo hosted"), say("It says: {{output}}")))).finalOutput.includes("hosted"), true);

const here = shellTool({ shell: { run: async (action) => ({ output: action.commands.map((command) => ({
  stdout: execSync(command).toString(), stderr: "", outcome: { type: "exit", exitCode: 0 } })) }) } });
expect((await run(agent(here), script(shell("echo $((6 * 7))"), say("It says: {{output}}")))).finalOutput.includes("42"), true);

let made = "";
const editor = { createFile: async ({ diff }) => { made = applyDiff("", diff, "create"); return { output: "created" }; },
  updateFile: async () => ({ status: "failed" }), deleteFile: async () => ({ status: "failed" }) };
const operation = { type: "create_file", path: "notes.txt", diff: "+hello\n" };
await run(agent(applyPatchTool({ editor })), script(call("apply_patch", operation), say("done")));
expect(made.trim(), "hello");

// The operator's server of spare parts: calls that need nobody's word, and calls that are allowed or not.
const find = script(call("depot__find_part", { sku: "A-7" }), say("It says: {{output}}"));
const free = hostedMcpTool({ serverLabel: "depot", requireApproval: "never" });
expect((await run(agent(free), find)).finalOutput, "It says: 14 of A-7 in stock");
const order = script(call("depot__order_part", { sku: "A-7", count: 2 }), say("It says: {{output}}"));
for (const [approve, answer] of [[true, "ordered 2 of A-7"], [false, "Too dear."]]) {
  const gated = hostedMcpTool({ serverLabel: "depot", requireApproval: "always",
    onApproval: async () => ({ approve, reason: "Too dear." }) });
  expect((await run(agent(gated), order)).finalOutput.includes(answer), true);
}
