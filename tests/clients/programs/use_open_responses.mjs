// ai with @ai-sdk/open-responses and @ai-sdk/openai-compatible: a tool loop and a stream, by Responses and by Chat Completions.
import { createOpenResponses } from "@ai-sdk/open-responses";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { KEY, MODEL, URL_, call, expect, say, script } from "./moorage_script.mjs";

const models = [
  createOpenResponses({ name: "moorage", url: `${URL_}/responses`, apiKey: KEY })(MODEL),
  createOpenAICompatible({ name: "moorage", baseURL: URL_, apiKey: KEY })(MODEL),
];
const tools = { get_weather: tool({ description: "The weather.", inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `rain in ${city}` }) };
const prompt = script(call("get_weather", { city: "Bergen" }), say("It says: {{output}}"));
for (const model of models) {
  const answered = await generateText({ model, tools, prompt, stopWhen: stepCountIs(3), maxRetries: 0 });
  expect(answered.text, "It says: rain in Bergen");
  let text = "";
  for await (const part of streamText({ model, prompt: script(say("one two three")), maxRetries: 0 }).textStream) text += part;
  expect(text, "one two three");
}
