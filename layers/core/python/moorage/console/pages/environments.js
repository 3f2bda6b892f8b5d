// Environments of agents, which are containers, and the templates that environments are made from.
import { html, useState } from "../html.js";
import { remove } from "../api.js";
import { address, setQuery } from "../router.js";
import { notify, route } from "../state.js";
import { Acting, Ago, Empty, Head, Id, Name, Status, Sure, Tabs } from "../ui/parts.js";
import { Listing } from "../ui/list.js";
import { plural } from "../model/text.js";

const EXAMPLE = `client.beta.agents.environments.create(
    environment={"type": "openai_hosted"},
)`;
const OF_TEMPLATES = `client.beta.agents.environments.templates.create(
    name="reports",
    network={"access": "restricted", "allowed_domains": ["api.example.com"]},
    setup_commands=[{"command": "mkdir -p /workspace/outputs"}],
)`;
const TABS = [
  { id: "environments", title: "Environments" },
  { id: "templates", title: "Templates" },
];

const skills = (row) => row.skills.map((skill) => skill.name ?? skill.skill_id).join(", ");
const files = (row) => row.files.length > 0 && html`<span title=${row.files.map((file) => file.path).join(", ")}>${plural(row.files.length, "file")}</span>`;

const ENVIRONMENTS = [
  { title: "Environment", cell: (row) => html`<${Id} id=${row.id} href=${address("containers", row.id)} />` },
  { title: "Status", cell: (row) => html`<${Status} status=${row.status} />` },
  { title: "Given", cell: files },
  { title: "Skills", cell: (row) => skills(row) && html`<${Name}>${skills(row)}</${Name}>` },
  { title: "Error", wide: true, cell: (row) => row.error && html`<span class="bad" title=${row.error.message}>${row.error.message}</span>` },
];

const network = ({ access, allowed_domains }) => (access === "restricted" ? allowed_domains.join(", ") : access);

const templates = (drop) => [
  { title: "Template", cell: (row) => html`<${Name}>${row.name || "unnamed"}</${Name}>` },
  { title: "Network", wide: true, cell: (row) => network(row.network) },
  { title: "Given", cell: files },
  { title: "Skills", cell: (row) => skills(row) && html`<${Name}>${skills(row)}</${Name}>` },
  { title: "Changed", cell: (row) => html`<${Ago} at=${row.updated_at} />` },
  { title: "Id", cell: (row) => html`<${Id} id=${row.id} />` },
  { title: "Actions", hidden: true, right: true, cell: (row) => html`<${Acting}><${Sure} label=${`Delete ${row.name ?? row.id}`} onClick=${() => drop(row)} /></${Acting}>` },
];

export function Environments() {
  const tab = route.value.query.tab === "templates" ? "templates" : "environments";
  return html`<${Head} title="Environments" note="The places of agents' commands and files. Each is a container." />
    <${Tabs} label="Kinds" tabs=${TABS} chosen=${tab} onChoose=${(next) => setQuery(route.value, { tab: next === "templates" ? next : "" })} />
    <div class="tab-body" role="tabpanel" aria-label=${tab}>${tab === "templates" ? html`<${Templates} />` : html`<${Listing} path="agents/environments" label="Environments" page="containers" columns=${ENVIRONMENTS} every=${5000}
      empty=${html`<${Empty} title="No environment yet" code=${EXAMPLE}><p>A session makes its own, or a program makes one before there is a session.</p></${Empty}>`} />`}</div>`;
}

function Templates() {
  const [again, reload] = useState(0);
  const drop = async (row) => {
    const answer = await remove(`agents/environments/templates/${row.id}`);
    notify(answer.ok ? "The template is deleted. Environments that were made from it stay." : answer.message, answer.ok ? "note" : "bad");
    reload((number) => number + 1);
  };
  return html`<p class="muted">Variables, setup commands and contents of a template are sealed and never shown.</p>
    <${Listing} path="agents/environments/templates" label="Templates" columns=${templates(drop)} again=${again} empty=${html`<${Empty} title="No template yet" code=${OF_TEMPLATES}><p>A template keeps files, skills, network, variables and setup commands under an id.</p></${Empty}>`} />`;
}
