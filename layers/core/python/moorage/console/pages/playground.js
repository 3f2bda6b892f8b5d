// Try something: a request by switches, its run beside it, and always the program that would do the same.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../html.js";
import { BASE, call, get, post } from "../api.js";
import { setQuery } from "../router.js";
import { isReadOnly, me, notify, route } from "../state.js";
import { useData } from "../ui/data.js";
import { Button, Code, Empty, Head, Id, META, Name, Tabs } from "../ui/parts.js";
import { answering } from "../model/models.js";
import { EFFORTS, IMAGE, MEMORIES, START, WEB, beyond, requestOf, searchOf, serversOf, settingsOf, toKeep } from "../model/request.js";
import { Drop } from "../ui/drop.js";
import { Offered, Server } from "../ui/offered.js";
import { curl, node, python } from "../model/code.js";
import { Run } from "./run.js";

const KEPT = "moorage.playground";
const URL_OF_API = BASE.replace(/\/$/, "");
const LANGUAGES = { python, node, curl };

function kept() {
  try {
    return { ...START, ...JSON.parse(localStorage.getItem(KEPT) ?? "{}") };
  } catch {
    return START;
  }
}

export function Playground() {
  const { query } = route.value;
  const [settings, set] = useState(kept);
  const [text, type] = useState("");
  const [files, attach] = useState([]);
  const [tokens, open] = useState({});
  const result = useRef(null);
  const sent = useRef(""); // the run that was begun here
  const models = useData((signal) => get("models", {}, signal), []);
  const run = query.run ?? "";
  const tab = query.code in LANGUAGES ? query.code : "run";
  const choose = (code) => setQuery(route.value, { code: code === "run" ? "" : code });
  useEffect(() => localStorage.setItem(KEPT, JSON.stringify(toKeep(settings))), [settings]);
  useEffect(() => {
    if (!settings.model && models.data?.data.length) set((before) => ({ ...before, model: answering(models.data.data)[0].id }));
  }, [models.data]);
  useEffect(() => {
    if (!query.again) return;
    const request = JSON.parse(sessionStorage.getItem("moorage.again") ?? "null");
    sessionStorage.removeItem("moorage.again");
    if (request) {
      set(settingsOf(request));
      type(typeof request.input === "string" ? request.input : JSON.stringify(request.input, null, 2));
    }
    setQuery(route.value, { again: "" });
  }, [query.again]);
  const more = { previous: query.after ?? "", files: files.map((file) => file.id) };
  const hidden = Object.fromEntries(Object.entries(tokens).filter(([, token]) => token).map(([label]) => [label, "<token>"]));
  const send = async () => {
    const answer = await post("responses", requestOf(settings, text, { ...more, tokens }));
    if (!answer.ok) return notify(answer.message, "bad");
    type("");
    attach([]);
    sent.current = answer.data.id;
    return setQuery(route.value, { run: answer.data.id, after: "", code: "" }, { isStep: true });
  };
  // On a narrow screen it lies below the form. A run may have ended before it is drawn, and then it is not followed.
  useLayoutEffect(() => {
    if (run && run === sent.current) result.current.scrollIntoView({ block: "start" });
  }, [run]);
  const press = (event) => {
    if (event.key === "Enter" && (event.metaKey || event.ctrlKey) && text.trim()) send();
  };
  const put = async (list) => {
    for (const { file } of list) {
      const form = new FormData();
      form.set("purpose", "user_data");
      form.set("file", file);
      const answer = await call("POST", "files", { form });
      if (answer.ok) attach((before) => [...before, { id: answer.data.id, name: file.name }]);
      else notify(answer.message, "bad");
    }
  };
  return html`<${Head} title="Playground" />
    <div class="play"><${Drop} tag="section" class="ask" aria-label="Request" take=${put} label="Drop files to put them into its container">
      ${query.after && html`<p class="line"><span class="muted">Continues</span><${Id} id=${query.after} href=${`#/runs/${query.after}`} /><button type="button" class="chip" onClick=${() => setQuery(route.value, { after: "" })}>Start over</button></p>`}
      <textarea data-filter rows="5" aria-label="Input" placeholder="Say what to do. Drop files here to put them into the container." value=${text} onInput=${(event) => type(event.target.value)} onKeyDown=${press}></textarea>
      ${files.length > 0 && html`<p class="chips">${files.map((file) => html`<button type="button" key=${file.id} class="chip" aria-label=${`Take ${file.name} out`} onClick=${() => attach(files.filter((each) => each.id !== file.id))}><${Name}>${file.name}</${Name}> ×</button>`)}</p>`}
      <p class="line">${isReadOnly() ? html`<span class="muted">This key looks and changes nothing.</span>` : html`<${Button} tone="primary" icon="play" isOff=${!text.trim()} onClick=${send}>Run</${Button}><kbd>${META} Enter</kbd>`}
        ${run && !query.after && html`<${Button} onClick=${() => setQuery(route.value, { after: run })}>Continue this run</${Button}>`}</p>
      <${Settings} settings=${settings} set=${set} models=${answering(models.data?.data ?? [])} tokens=${tokens} open=${open} />
    </${Drop}>
    <section class=${`seen ${run ? "has-run" : ""}`} aria-label="Result" ref=${result}><${Tabs} label="Result" tabs=${[{ id: "run", title: "Run" }, ...Object.keys(LANGUAGES).map((id) => ({ id, title: id === "node" ? "Node" : id === "curl" ? "curl" : "Python" }))]} chosen=${tab} onChoose=${choose} />
      ${tab === "run" ? (run ? html`<${Run} key=${run} id=${run} embedded=${true} />` : html`<${Empty} title="The run shows here"><p>Its timeline, its transcript and its files, live. The other tabs hold the same request as a program.</p></${Empty}>`) : html`<div class="pad-top"><${Code} text=${LANGUAGES[tab](requestOf(settings, text || "…", { ...more, tokens: hidden }), URL_OF_API)} /></div>`}
    </section></div>`;
}

function Settings({ settings, set, models, tokens, open }) {
  const skills = useData((signal) => get("skills", { limit: 100 }, signal), []);
  const stores = useData((signal) => get("vector_stores", { limit: 100 }, signal), []);
  const change = (name) => (event) => set((before) => ({ ...before, [name]: event.target.type === "checkbox" ? event.target.checked : event.target.value }));
  const field = (name, label, placeholder, more = {}) => html`<label><span>${label}</span><input type=${more.type ?? "text"} min=${more.type && "0"} step=${more.step} placeholder=${placeholder} value=${settings[name]} onInput=${change(name)} /></label>`;
  const toggle = (name, id) => set((before) => ({ ...before, [name]: before[name].includes(id) ? before[name].filter((each) => each !== id) : [...before[name], id] }));
  // What was chosen and is gone by now stays in sight, so that it can be taken out.
  const withGone = (name, entries) => [...entries, ...settings[name].filter((id) => !entries.some((entry) => entry.id === id)).map((id) => ({ id }))];
  const chips = (name, entries) => html`<div class="chips">${withGone(name, entries).map((entry) => html`<button type="button" key=${entry.id} class="chip" aria-pressed=${settings[name].includes(entry.id)} title=${entry.description} onClick=${() => toggle(name, entry.id)}><${Name}>${entry.name || entry.id}</${Name}></button>`)}</div>`;
  const servers = serversOf(settings.mcp);
  const hasPlace = settings.shell || settings.python;
  const ceiling = me.value?.network?.allowed_domains;
  const outside = hasPlace && ceiling ? beyond(settings.hosts, ceiling) : [];
  const hasTools = hasPlace || settings.web || settings.image || settings.stores.length > 0 || servers.length > 0;
  const isAdvanced = useRef(Boolean(settings.mcp || settings.tokens || settings.calls || settings.dollars)).current;
  return html`<div class="settings">
    <label><span>Model</span><select value=${settings.model} onChange=${change("model")}>${models.map((model) => html`<option key=${model.id} value=${model.id}>${model.id}</option>`)}</select></label>
    <label><span>Reasoning effort</span><select value=${settings.effort} onChange=${change("effort")}>${EFFORTS.map((effort) => html`<option key=${effort} value=${effort}>${effort || "default"}</option>`)}</select></label>
    <label class="whole"><span>Instructions</span><textarea rows="2" value=${settings.instructions} onInput=${change("instructions")}></textarea></label>
    <fieldset><legend>Tools</legend>
      <label class="check"><input type="checkbox" checked=${settings.shell} onChange=${change("shell")} />Shell</label>
      <label class="check"><input type="checkbox" checked=${settings.python} onChange=${change("python")} />Code interpreter</label>
      <label class="check"><input type="checkbox" checked=${settings.web} onChange=${change("web")} />Web search</label>
      <label class="check"><input type="checkbox" checked=${settings.image} onChange=${change("image")} />Image generation</label>
      ${hasTools && html`<label class="check"><input type="checkbox" checked=${settings.asks} onChange=${change("asks")} />Ask for approval</label>`}
      ${settings.web && html`<${Offered} tool=${WEB} model=${settings.model} table="web_search" />`}${settings.image && html`<${Offered} tool=${IMAGE} model=${settings.model} table="image_generation" />`}</fieldset>
    ${hasPlace && html`<label><span>Memory</span><select value=${settings.memory} onChange=${change("memory")}>${MEMORIES.map((memory) => html`<option key=${memory}>${memory}</option>`)}</select></label>
      ${field("hosts", "Allowed hosts", "api.example.com")}
      ${outside.length > 0 && html`<p class="whole bad" role="status">The operator does not allow <${Name}>${outside.join(", ")}</${Name}>: ${ceiling.length ? `at most ${ceiling.join(", ")}` : "no host at all"}. A request with it is refused.</p>`}
      ${settings.hosts.trim() && html`<label class="whole"><span>Operator secrets</span><input type="text" placeholder="GITHUB_TOKEN@api.github.com" value=${settings.secrets} onInput=${change("secrets")} /></label>`}`}
    ${settings.shell && withGone("skills", skills.data?.data ?? []).length > 0 && html`<fieldset><legend>Skills</legend>${chips("skills", skills.data?.data ?? [])}</fieldset>`}
    ${stores.data && html`<fieldset><legend>File search</legend>${withGone("stores", stores.data.data).length > 0 ? chips("stores", stores.data.data) : html`<a href="#/vector_stores">Make a vector store</a>`}
      ${settings.stores.length > 0 && html`<${Offered} tool=${searchOf(settings.stores)} model=${settings.model} />`}</fieldset>`}
    <details class="whole" open=${isAdvanced}><summary>Advanced</summary><div class="settings">
    <label class="whole"><span>MCP servers</span><input type="text" placeholder="https://mcp.example.com/mcp, or a label" value=${settings.mcp} onInput=${change("mcp")} /></label>
    ${servers.map((server) => html`<${Server} key=${server.server_label} server=${server} token=${tokens[server.server_label] ?? ""} onToken=${(token) => open((before) => ({ ...before, [server.server_label]: token }))} />`)}
    ${field("tokens", "Max output tokens", "no limit", { type: "number" })}
    ${field("calls", "Max tool calls", "no limit", { type: "number" })}
    ${field("dollars", "Max dollars", "no limit", { type: "number", step: "0.01" })}
    </div></details>
  </div>`;
}
