// What every Node program here needs.
import assert from "node:assert/strict";

export const URL_ = process.env.OPENAI_BASE_URL;
export const KEY = process.env.OPENAI_API_KEY;
export const MODEL = "demo";
export const script = (...steps) => "```moorage-script\n" + JSON.stringify(steps) + "\n```";
export const call = (name, args) => ({ call: { name, arguments: args } });
export const shell = (...commands) => ({ shell: { commands } });
export const say = (text) => ({ say: text });
export const expect = (actual, wanted) => assert.deepEqual(actual, wanted);
