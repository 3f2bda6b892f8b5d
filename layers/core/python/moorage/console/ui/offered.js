// Whether this deployment serves a tool, in the API's own words, and what a remote server offers before a model is asked to use it.
import { html, useState } from "../html.js";
import { call, post } from "../api.js";
import { isReadOnly } from "../state.js";
import { useData } from "./data.js";
import { Button, Name } from "./parts.js";
import { plural } from "../model/text.js";

const DOCS = { web_search: "docs/web_search.md", image_generation: "docs/image_generation.md" };

// To count a request's tokens refuses what a response would be refused for, and asks no model.
export function Offered({ tool, model, table }) {
  const counted = useData((signal) => (model && !isReadOnly() ? call("POST", "responses/input_tokens", { body: { model, input: "…", tools: [tool] }, signal }) : { ok: true, data: null }), [JSON.stringify(tool), model]);
  if (!counted.problem || counted.data) return null;
  return html`<p class="refused" role="alert"><span>${counted.problem}</span> ${table && html`<span class="muted">The operator turns it on: a table <code>[${table}]</code> in <code>models.toml</code> (${DOCS[table]}).</span>`}</p>`;
}

const LISTED = '```moorage-script\n[{"say": "listed"}]\n```';

// The server's tools, by a response of the scripted model, which every deployment has, is free, and makes no call. Nothing of it is kept.
export function Server({ server, token, onToken }) {
  const [found, show] = useState(null);
  if (server.server_url?.startsWith("moorage:")) return null; // It is built in: there is nothing to open or to try.
  const attempt = async () => {
    show(null);
    const tool = { ...server, ...(token ? { authorization: token } : {}), require_approval: "always" };
    const answer = await post("responses", { model: "demo", input: LISTED, tools: [tool], store: false });
    const listed = answer.data?.output?.find((item) => item.type === "mcp_list_tools");
    show(answer.ok ? { tools: listed?.tools ?? [], problem: wrong(listed, answer.data) } : { tools: [], problem: answer.message });
  };
  return html`<fieldset class="server"><legend><${Name}>${server.server_label}</${Name}></legend><div class="line">${server.server_url && html`<input type="password" autocomplete="off" aria-label=${`Token for ${server.server_label}`} placeholder="bearer token, if it wants one" value=${token} onInput=${(event) => onToken(event.target.value)} />`}
      ${!isReadOnly() && html`<${Button} onClick=${attempt} label=${`Try the connection to ${server.server_label}`}>Try the connection</${Button}>`}</div>
    <div role="status" aria-label=${`Tools of ${server.server_label}`}>${found && (found.problem ? html`<p class="bad">${found.problem}</p>` : html`<p><b>${plural(found.tools.length, "tool")}</b> <span class="muted">${found.tools.map((tool) => tool.name).join(", ")}</span></p>`)}</div></fieldset>`;
}

function wrong(listed, response) {
  const said = listed?.error ?? response.error;
  if (said) return typeof said === "string" ? said : (said.message ?? JSON.stringify(said));
  return listed ? "" : "The server was not asked.";
}
