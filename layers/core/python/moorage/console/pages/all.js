// The pages, in the order of the rail. `letter` follows g. What one looks at first is here at once, the others come when they are asked for.
import { html } from "../html.js";
import { route } from "../state.js";
import { lazy } from "../ui/lazy.js";
import { Run } from "./run.js";
import { Runs } from "./runs.js";

// A list, and one of its entries where the address names one.
const either = (List, One) => () => (route.value.id ? html`<${One} />` : html`<${List} />`);

const agents = () => import("./agents.js");
const automations = () => import("./automations.js");
const vaults = () => import("./vaults.js");
const skills = () => import("./skills.js");
const webhooks = () => import("./webhooks.js");

export const PAGES = [
  { id: "runs", title: "Runs", letter: "r", View: either(Runs, Run) },
  { id: "playground", title: "Playground", letter: "p", View: lazy(() => import("./playground.js"), "Playground") },
  { id: "approvals", title: "Approvals", letter: "a", View: lazy(() => import("./approvals.js"), "Approvals") },
  { id: "sessions", title: "Sessions", letter: "e", View: either(lazy(() => import("./sessions.js"), "Sessions"), lazy(() => import("./session.js"), "Session")), group: "apart" },
  { id: "agents", title: "Agents", letter: "g", View: either(lazy(agents, "Agents"), lazy(agents, "Agent")) },
  { id: "automations", title: "Automations", letter: "t", View: either(lazy(automations, "Automations"), lazy(automations, "Automation")) },
  { id: "vaults", title: "Vaults", letter: "l", View: either(lazy(vaults, "Vaults"), lazy(vaults, "Vault")) },
  { id: "environments", title: "Environments", letter: "n", View: lazy(() => import("./environments.js"), "Environments") },
  { id: "containers", title: "Containers", letter: "c", View: either(lazy(() => import("./containers.js"), "Containers"), lazy(() => import("./container.js"), "Container")), group: "apart" },
  { id: "files", title: "Files", letter: "f", View: lazy(() => import("./files.js"), "Files") },
  { id: "skills", title: "Skills", letter: "s", View: either(lazy(skills, "Skills"), lazy(skills, "Skill")) },
  { id: "vector_stores", title: "Vector stores", letter: "v", View: either(lazy(() => import("./stores.js"), "Stores"), lazy(() => import("./store.js"), "Store")) },
  { id: "webhooks", title: "Webhooks", letter: "w", View: either(lazy(webhooks, "Webhooks"), lazy(webhooks, "Webhook")) },
  { id: "usage", title: "Usage", letter: "u", View: lazy(() => import("./usage.js"), "Usage"), group: "apart" },
  { id: "keys", title: "Keys and tenants", letter: "k", View: lazy(() => import("./keys.js"), "Keys") },
  { id: "doctor", title: "Doctor", letter: "d", View: lazy(() => import("./doctor.js"), "Doctor") },
];
