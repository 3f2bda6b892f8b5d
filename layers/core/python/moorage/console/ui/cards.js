// One item of a run: what was said, asked for, printed.
import { html, useState } from "../html.js";
import { address } from "../router.js";
import { count, duration, plural } from "../model/text.js";
import { printable } from "../model/ansi.js";
import { Drawn, inWords, usePicture } from "./drawn.js";
import { FileLink } from "./file_link.js";
import { Icon } from "./icons.js";
import { Json } from "./json.js";
import { Markdown } from "./markdown.js";
import { Button, Id, Name, copy } from "./parts.js";
import { lazy } from "./lazy.js";
import { Terminal } from "./terminal.js";

const Passages = lazy(() => import("./passages.js"), "Passages");
const COMMAND_LINES = 12;
const SOURCE_CHARS = 280;

// `before` is what a compaction stands for, where that is known; `step` the step of the item's call; `isHeld` whether that call waits
// for approval; `call` the call of an output, and `runId` the run, from whose log a picture may be read.
export function Item({ item, mark, isDone, before, step, isHeld, call, runId }) {
  const View = VIEWS[item.type] ?? Other;
  return html`<${View} item=${item} mark=${mark} isDone=${isDone} before=${before} step=${step} isHeld=${isHeld} call=${call} runId=${runId} />`;
}

export function Said({ who, content, isDone = true }) {
  const parts = typeof content === "string" ? [{ type: "input_text", text: content }] : (content ?? []);
  return html`<section class=${`card said-by ${who}`}><h3>${who}</h3>${parts.map((part, at) => html`<${Part} key=${at} part=${part} isDone=${isDone} isOwn=${who === "assistant"} />`)}</section>`;
}

function Part({ part, isDone, isOwn }) {
  switch (part.type) {
    case "input_text":
    case "output_text":
    case "reasoning_text":
    case "text":
      return html`${isOwn ? html`<${Markdown} text=${part.text} isOpen=${!isDone} />` : html`<div class="said plain" dir="auto">${part.text}</div>`}
        ${part.annotations?.length > 0 && html`<p class="cited">${part.annotations.map((each, at) => html`<${Cited} key=${at} note=${each} />`)}</p>`}`;
    case "refusal":
      return html`<div class="said plain bad" dir="auto">${part.refusal}</div>`;
    case "input_image":
      return html`<${Picture} url=${part.image_url} id=${part.file_id} />`;
    case "input_file":
      return html`<p class="cited">${part.file_id ? html`<${Id} id=${part.file_id} href=${address("files", part.file_id)} />` : html`<span class="chip">${part.filename ?? part.file_url ?? "a file"}</span>`}</p>`;
    default:
      return html`<${Json} value=${part} />`;
  }
}

// Only pictures that came with the item: none is fetched from an address that somebody wrote.
function Picture({ url, id }) {
  if (url?.startsWith("data:image/")) return html`<img class="figure" src=${url} alt="A picture of this item" />`;
  return html`<p class="cited"><span class="chip">${id ?? url ?? "a picture"}</span></p>`;
}

function Cited({ note }) {
  if (note.type === "container_file_citation") return html`<${FileLink} containerId=${note.container_id} fileId=${note.file_id} name=${note.filename} />`;
  if (note.type === "url_citation" && /^https?:/.test(note.url)) return html`<a class="chip" href=${note.url} target="_blank" rel="noopener noreferrer nofollow"><${Name}>${note.title || note.url}</${Name}></a>`;
  return html`<span class="chip"><${Name}>${note.filename ?? note.title ?? note.type}</${Name}></span>`;
}

const Message = ({ item, isDone }) => html`<${Said} who=${item.role ?? "assistant"} content=${item.content} isDone=${isDone} />`;

function Reasoning({ item, isDone }) {
  // A summary may repeat the raw text, where the client asked for one.
  const text = (item.content?.length ? item.content : item.summary ?? []).map((part) => part.text).join("\n\n");
  const [isOpen, open] = useState(false);
  if (!text) return html`<section class="card thought"><h3>reasoning</h3><p class="muted">Encrypted, or without a summary.</p></section>`;
  return html`<section class="card thought"><h3><button type="button" aria-expanded=${isOpen || !isDone} onClick=${() => open(!isOpen)}>${isOpen ? "▾" : "▸"} reasoning</button></h3>
    ${isOpen || !isDone ? html`<${Markdown} text=${text} isOpen=${!isDone} />` : html`<p class="muted first-line">${text.split("\n")[0]}</p>`}</section>`;
}

function Shell({ item }) {
  return html`<section class="card call"><h3><${Icon} name="containers" size=${13} />shell
    ${item.environment?.container_id && html`<${Id} id=${item.environment.container_id} href=${address("containers", item.environment.container_id)} />`}</h3>
    ${item.action.commands.map((command, at) => html`<${Command} key=${at} text=${command} />`)}</section>`;
}

export function Command({ text }) {
  const shown = printable(text);
  const lines = shown.split("\n");
  const [isWhole, open] = useState(false);
  return html`<div class="command"><pre tabindex="0"><b aria-hidden="true">$ </b>${isWhole ? shown : lines.slice(0, COMMAND_LINES).join("\n")}</pre>
    ${lines.length > COMMAND_LINES && html`<button type="button" class="ghost tiny" aria-expanded=${isWhole} onClick=${() => open(!isWhole)}>${isWhole ? "less" : `${lines.length - COMMAND_LINES} more lines`}</button>`}
    <button type="button" class="ghost tiny copy" aria-label="Copy the command" onClick=${() => copy(text)}><${Icon} name="copy" size=${12} /></button></div>`;
}

function ShellOutput({ item, mark, isDone, step, isHeld }) {
  // A call of one command has one time: that of its step.
  const whole = item.output.length === 1 && step?.started_at && step.ended_at ? step.ended_at - step.started_at : null;
  return html`<section class="card output">${item.output.length === 0 && html`<p class="muted">${isDone ? "No output." : isHeld ? "Waiting for approval" : "Running…"}</p>`}
    ${item.output.map((one, at) => html`<div class="printed" key=${at}>
      ${one.stdout && html`<${Terminal} text=${one.stdout} stream="stdout" label=${`Output of command ${at + 1}`} />`}
      ${one.stderr && html`<${Terminal} text=${one.stderr} stream="stderr" label=${`Errors of command ${at + 1}`} />`}
      <${Outcome} outcome=${one.outcome} command=${mark.commands[at]} took=${whole} /></div>`)}</section>`;
}

export function Outcome({ outcome, command, took }) {
  const lasted = took ?? (command?.endedAt ? command.endedAt - command.at : null);
  if (!outcome) return html`<p class="outcome busy">running</p>`;
  const isGood = outcome.type === "exit" && outcome.exit_code === 0;
  return html`<p class=${`outcome ${isGood ? "good" : "bad"}`}><${Icon} name=${isGood ? "ok" : "fail"} size=${12} />${outcome.type === "exit" ? `exit ${outcome.exit_code}` : "timed out"}<span class="muted">${duration(lasted)}</span></p>`;
}

function CodeCall({ item, isDone }) {
  return html`<section class="card call"><h3><${Icon} name="playground" size=${13} />python ${item.container_id && html`<${Id} id=${item.container_id} href=${address("containers", item.container_id)} />`}</h3>
    <${Command} text=${item.code ?? ""} />
    ${(item.outputs ?? []).map((one, at) => (one.type === "image" ? html`<${Picture} key=${at} url=${one.url} />` : html`<${Terminal} key=${at} text=${one.logs ?? ""} stream="stdout" label="Output of the code" />`))}
    ${item.outputs === null && isDone && html`<p class="muted">The request did not ask for the outputs (include: code_interpreter_call.outputs).</p>`}</section>`;
}

const ImageCall = ({ item }) => html`<section class="card call"><h3><${Icon} name="playground" size=${13} />image · ${item.action ?? "generate"}${item.size ? ` · ${item.size}` : ""}</h3>
  <p>${item.revised_prompt ?? ""}</p>
  ${item.result && html`<${Picture} url=${`data:image/${item.output_format ?? "png"};base64,${item.result}`} />`}
  ${item.error && html`<p class="bad">${item.error.message}</p>`}</section>`;

const actionsOf = (call) => call?.actions ?? (call?.action ? [call.action] : []);

function ComputerCall({ item }) {
  return html`<section class="card call"><h3><${Icon} name="playground" size=${13} />computer
    ${item.container?.container_id && html`<${Id} id=${item.container.container_id} href=${address("containers", item.container.container_id)} />`}</h3>
    <ol class="actions">${actionsOf(item).map((action, at) => html`<li key=${at}>${inWords(action)}</li>`)}</ol></section>`;
}

function ComputerOutput({ item, mark, isDone, isHeld, call, runId }) {
  const picture = usePicture(runId, item.page && mark, item.output?.image_url);
  const failed = (item.actions ?? []).filter((result) => !result.ok);
  return html`<section class="card output">
    ${item.page && html`<p class="muted"><${Name}>${item.page.title}</${Name}> · <${Name}>${item.page.url}</${Name}></p>`}
    ${failed.map((result, at) => html`<p class="bad" key=${at}>${result.error}</p>`)}
    ${(item.page?.notes ?? []).map((note, at) => html`<p class="muted" key=${at}>${note}</p>`)}
    ${picture?.startsWith("data:image/") && html`<${Drawn} url=${picture} actions=${actionsOf(call)} page=${item.page} label="The screen after these actions" />`}
    ${!isDone && html`<p class="muted">${isHeld ? "Waiting for approval" : "Running…"}</p>`}
    ${isDone && item.page && !picture && !runId && html`<p class="muted">The request did not ask for the picture (include: computer_call_output.output.image_url).</p>`}</section>`;
}

function FunctionCall({ item }) {
  return html`<section class="card call"><h3><${Icon} name="playground" size=${13} />${item.name ?? item.type}</h3><${Argument} text=${item.arguments ?? item.input ?? ""} /></section>`;
}

function Argument({ text }) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    return html`<pre class="block" tabindex="0">${printable(text)}</pre>`;
  }
  return html`<${Json} value=${value} depth=${2} />`;
}

// What agents of a team ask of each other, and say.
const TeamCall = ({ item }) => html`<section class="card call"><h3><${Icon} name="agents" size=${13} />${item.action.replaceAll("_", " ")}</h3><${Argument} text=${item.arguments} /></section>`;

const TeamOutput = ({ item }) => html`<section class="card output">${item.output.map((part, at) => html`<${Argument} key=${at} text=${part.text} />`)}</section>`;

const TeamMessage = ({ item }) => html`<section class="card user"><h3><${Icon} name="agents" size=${13} /><${Name}>${item.author}</${Name}> → <${Name}>${item.recipient}</${Name}></h3>${(item.content ?? []).map((part, at) => html`<${Part} key=${at} part=${part} isDone=${true} />`)}</section>`;

function Output({ item }) {
  const isText = typeof item.output === "string";
  return html`<section class="card output"><h3>output</h3>${isText ? html`<${Terminal} text=${item.output} stream="stdout" label="Output" />` : html`<${Json} value=${item.output ?? null} depth=${2} />`}</section>`;
}

function McpCall({ item }) {
  return html`<section class="card call"><h3><${Icon} name="webhooks" size=${13} /><${Name}>${item.server_label}</${Name}> · <${Name}>${item.name}</${Name}></h3><${Argument} text=${item.arguments ?? ""} />
    ${item.output && html`<${Terminal} text=${item.output} stream="stdout" label=${`Output of ${item.name}`} />`}
    ${item.error && html`<p class="bad">${typeof item.error === "string" ? item.error : (item.error.message ?? JSON.stringify(item.error))}</p>`}</section>`;
}

const McpTools = ({ item }) => html`<section class="card call"><h3><${Icon} name="webhooks" size=${13} />${item.server_label}: ${(item.tools ?? []).length} tools</h3>
  <p class="muted">${(item.tools ?? []).map((tool) => tool.name).join(", ")}</p>${item.error && html`<p class="bad">${String(item.error.message ?? item.error)}</p>`}</section>`;

function FileSearch({ item, isDone }) {
  return html`<section class="card call"><h3><${Icon} name="vector_stores" size=${13} />file search</h3>
    <p class="chips">${(item.queries ?? []).map((query) => html`<span class="chip" key=${query}><${Name}>${query}</${Name}></span>`)}</p>
    ${item.results?.length > 0 && html`<${Passages} hits=${item.results} query=${(item.queries ?? []).join(" ")} />`}
    ${item.results?.length === 0 && html`<p class="muted">Nothing was found.</p>`}
    ${!item.results && !item.error && isDone && html`<p class="muted">The request did not ask for the passages (include: file_search_call.results).</p>`}
    ${item.error && html`<p class="bad">${item.error}</p>`}</section>`;
}

const LOOKS = { search: "looks for", open_page: "opens", find_in_page: "looks in a page for" };

function WebSearch({ item }) {
  const { type, query, queries, url, pattern, sources } = item.action ?? {};
  const read = item.results ?? (sources ?? []).map((source) => ({ url: source.url }));
  return html`<section class="card call"><h3><${Icon} name="search" size=${13} />web: ${LOOKS[type] ?? type ?? "search"}</h3>
    <p class="chips">${[...(queries ?? [query]), pattern].filter(Boolean).map((text) => html`<span class="chip" key=${text}><${Name}>${text}</${Name}></span>`)}${url && html`<${Web} url=${url} />`}</p>
    ${read.length > 0 && html`<ul class="sources" aria-label="Sources">${read.map((source, at) => html`<li key=${at}><${Web} url=${source.url} title=${source.title} />${source.text && html`<p class="muted" dir="auto">${printable(source.text).slice(0, SOURCE_CHARS)}${source.text.length > SOURCE_CHARS ? " …" : ""}</p>`}</li>`)}</ul>`}
    ${item.error && html`<p class="bad">${item.error}</p>`}</section>`;
}

// An address that somebody named: to be pressed only where it leads to the web.
const Web = ({ url, title }) =>
  /^https?:\/\//i.test(url) ? html`<a class="chip" href=${url} target="_blank" rel="noopener noreferrer nofollow" title=${url}><${Name}>${title || url}</${Name}></a>` : html`<span class="chip"><${Name}>${title || url}</${Name}></span>`;

const Asked = ({ item }) => html`<section class="card asked-for"><h3><${Icon} name="approvals" size=${13} />asks for approval: ${item.server_label ?? ""} ${item.name ?? ""}</h3><${Argument} text=${item.arguments ?? ""} />
  <p><a class="button" href="#/approvals">Approvals</a></p></section>`;

function Compaction({ item, before }) {
  const notes = item.encrypted_content ? `notes of ${count(item.encrypted_content.length)} sealed characters` : "notes";
  return html`<section class="card thought"><h3>compaction</h3><p class="number">${before ? `${plural(before.items, "item")} → ${notes}` : `What was said before → ${notes}`}</p>
    ${before?.tokens != null && html`<p class="muted number">${count(before.tokens)} tokens in at the call before it${before.tokensAfter != null ? `, ${count(before.tokensAfter)} at the call after it` : ""}</p>`}
    <p class="muted">The model reads the notes in their place from here on.</p></section>`;
}

const Other = ({ item }) => html`<section class="card call"><h3>${item.type.replaceAll("_", " ")}</h3><${Json} value=${item} depth=${1} /></section>`;

const VIEWS = {
  message: Message,
  reasoning: Reasoning,
  shell_call: Shell,
  shell_call_output: ShellOutput,
  code_interpreter_call: CodeCall,
  image_generation_call: ImageCall,
  computer_call: ComputerCall,
  computer_call_output: ComputerOutput,
  function_call: FunctionCall,
  custom_tool_call: FunctionCall,
  function_call_output: Output,
  custom_tool_call_output: Output,
  file_search_call: FileSearch,
  web_search_call: WebSearch,
  mcp_call: McpCall,
  mcp_list_tools: McpTools,
  mcp_approval_request: Asked,
  compaction: Compaction,
  multi_agent_call: TeamCall,
  multi_agent_call_output: TeamOutput,
  agent_message: TeamMessage,
};

export const RawButton = ({ value, name }) => html`<${Button} icon="copy" tone="quiet" label=${`JSON: copy ${name}`} onClick=${() => copy(JSON.stringify(value, null, 2))}>JSON</${Button}>`;
