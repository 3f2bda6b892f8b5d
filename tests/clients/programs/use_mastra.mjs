// @mastra/core: an agent with a tool, by the AI SDK's Responses model, whole and streamed.
import { createOpenAI } from "@ai-sdk/openai";
import { Agent } from "@mastra/core/agent";
import { createTool } from "@mastra/core/tools";
import { z } from "zod";
import { KEY, MODEL, URL_, call, expect, say, script } from "./moorage_script.mjs";

const getWeather = createTool({
  id: "get_weather", description: "The weather.", inputSchema: z.object({ city: z.string() }),
  outputSchema: z.string(), execute: async (input) => `rain in ${input.city ?? input.context.city}` });
const model = createOpenAI({ baseURL: URL_, apiKey: KEY }).responses(MODEL);
const agent = new Agent({ id: "agent", name: "agent", instructions: "Be brief.", model, tools: { get_weather: getWeather } });
const prompt = script(call("get_weather", { city: "Bergen" }), say("It says: {{output}}"));
expect((await agent.generate(prompt)).text, "It says: rain in Bergen");
const stream = await agent.stream(script(say("one two three")));
let text = "";
for await (const part of stream.textStream) text += part;
expect(text, "one two three");
