// ai and @ai-sdk/openai: a tool loop and a stream.
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { KEY, MODEL, URL_, call, expect, say, script } from "./moorage_script.mjs";

const model = createOpenAI({ baseURL: URL_, apiKey: KEY }).responses(MODEL);
const tools = { get_weather: tool({ description: "The weather.", inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `rain in ${city}` }) };
const prompt = script(call("get_weather", { city: "Bergen" }), say("It says: {{output}}"));
const answered = await generateText({ model, tools, prompt, stopWhen: stepCountIs(3), maxRetries: 0 });
expect(answered.text, "It says: rain in Bergen");
expect(answered.steps.length, 2);

let text = "";
for await (const part of streamText({ model, prompt: script(say("one two three")), maxRetries: 0 }).textStream) text += part;
expect(text, "one two three");
