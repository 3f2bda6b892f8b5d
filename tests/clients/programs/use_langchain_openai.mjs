// @langchain/openai: a tool's round trip and a stream.
import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI } from "@langchain/openai";
import { z } from "zod";
import { KEY, MODEL, URL_, call, expect, say, script } from "./moorage_script.mjs";

const chat = new ChatOpenAI({ model: MODEL, apiKey: KEY, useResponsesApi: true, maxRetries: 0, configuration: { baseURL: URL_ } });
const weather = tool(async ({ city }) => `rain in ${city}`, {
  name: "get_weather", description: "The weather.", schema: z.object({ city: z.string() }) });
const messages = [new HumanMessage(script(call("get_weather", { city: "Bergen" }), say("It says: {{output}}")))];
const asked = await chat.bindTools([weather]).invoke(messages);
const [wanted] = asked.tool_calls;
messages.push(asked, new ToolMessage({ content: await weather.invoke(wanted.args), tool_call_id: wanted.id }));
expect((await chat.bindTools([weather]).invoke(messages)).text, "It says: rain in Bergen");

let text = "";
for await (const chunk of await chat.stream(script(say("one two three")))) text += chunk.text;
expect(text, "one two three");
