// What an agent is set to, as a form: for a new one, and for a change of one.
import { html, useState } from "../html.js";
import { get } from "../api.js";
import { notify } from "../state.js";
import { answering } from "../model/models.js";
import { EFFORTS, TOOLS, pairsOf, pairsText, toolsOf } from "../model/agents.js";
import { useData } from "./data.js";
import { Button } from "./parts.js";

// `send(settings)` tells whether they were taken.
export function AgentForm({ agent, label, send }) {
  const models = useData((signal) => get("models", {}, signal), []);
  const [settings, set] = useState({
    name: agent?.name ?? "",
    model: agent?.model ?? "",
    instructions: agent?.instructions ?? "",
    effort: agent?.reasoning.effort ?? "",
    tools: agent?.tools.length ? JSON.stringify(agent.tools, null, 2) : "",
    metadata: pairsText(agent?.metadata ?? {}),
  });
  const change = (name) => (event) => set((before) => ({ ...before, [name]: event.target.value }));
  const offered = answering(models.data?.data ?? []).map((each) => each.id);
  const listed = settings.model && !offered.includes(settings.model) ? [settings.model, ...offered] : offered;
  const model = settings.model || offered[0] || "";
  const tools = toolsOf(settings.tools);
  const add = (tool) => set((before) => ({ ...before, tools: JSON.stringify([...toolsOf(before.tools).list, tool], null, 2) }));
  const press = async () => {
    const reasoning = Object.entries({ summary: agent?.reasoning.summary, effort: settings.effort }).filter(([, value]) => value);
    const isTaken = await send({
      model,
      name: settings.name || null,
      instructions: settings.instructions || null,
      reasoning: reasoning.length ? Object.fromEntries(reasoning) : null,
      tools: tools.list,
      metadata: pairsOf(settings.metadata),
    });
    if (isTaken) notify("It is saved.");
  };
  return html`<section class="form" aria-label=${label}><div class="settings">
    <label><span>Name</span><input type="text" maxlength="128" placeholder="clerk" value=${settings.name} onInput=${change("name")} /></label>
    <label><span>Model</span><select value=${model} onChange=${change("model")}>${listed.map((id) => html`<option key=${id} value=${id}>${id}</option>`)}</select></label>
    <label class="whole"><span>Instructions</span><textarea rows="4" placeholder="What it is for, and how it answers" value=${settings.instructions} onInput=${change("instructions")}></textarea></label>
    <label><span>Reasoning effort</span><select value=${settings.effort} onChange=${change("effort")}><option value="">default</option>${EFFORTS.map((effort) => html`<option key=${effort} value=${effort}>${effort}</option>`)}</select></label>
    <label><span>Metadata</span><input type="text" placeholder="team=parcels" value=${settings.metadata} onInput=${change("metadata")} /></label>
    <div class="whole"><label><span>Tools, as JSON</span><textarea rows=${settings.tools ? 8 : 2} class="mono" spellcheck="false" placeholder="none" value=${settings.tools} onInput=${change("tools")}></textarea></label>
      ${tools.problem ? html`<p class="bad" role="status">${tools.problem}</p>` : html`<p class="chips"><span class="muted">Add</span>${Object.entries(TOOLS).map(([title, tool]) => html`<button type="button" class="chip" key=${title} onClick=${() => add(tool)}>${title}</button>`)}</p>`}</div></div>
    <p class="line"><${Button} icon="ok" tone="primary" isOff=${!model || tools.problem} onClick=${press}>${label}</${Button}></p></section>`;
}
