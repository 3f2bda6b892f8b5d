// @langchain/openai: a tool's round trip, a stream, and a remote server: called, allowed and refused.
import assert from "node:assert/strict";
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

// The operator's server of spare parts.
const depot = (require_approval) => chat.bindTools([{ type: "mcp", server_label: "depot", require_approval }]);
const find = script(call("depot__find_part", { sku: "A-7" }), say("It says: {{output}}"));
expect((await depot("never").invoke(find)).text, "It says: 14 of A-7 in stock");
const order = script(call("depot__order_part", { sku: "A-7", count: 2 }), say("It says: {{output}}"));
for (const [approve, answer] of [[true, "ordered 2 of A-7"], [false, "did not allow"]]) {
  const held = await depot("always").invoke(order);
  const request = held.additional_kwargs.tool_outputs.find((item) => item.type === "mcp_approval_request");
  const word = { type: "mcp_approval_response", approval_request_id: request.id, approve };
  const answered = await depot("always").invoke(
    [new HumanMessage({ content: [word] })], { previous_response_id: held.response_metadata.id });
  assert.ok(answered.text.includes(answer), answered.text);
}

let text = "";
for await (const chunk of await chat.stream(script(say("one two three")))) text += chunk.text;
expect(text, "one two three");
