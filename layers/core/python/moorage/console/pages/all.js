// The pages, in the order of the rail. `letter` follows g.
import { html } from "../html.js";
import { route } from "../state.js";
import { Approvals } from "./approvals.js";
import { Container } from "./container.js";
import { Containers } from "./containers.js";
import { Doctor } from "./doctor.js";
import { Files } from "./files.js";
import { Keys } from "./keys.js";
import { Playground } from "./playground.js";
import { Run } from "./run.js";
import { Runs } from "./runs.js";
import { Skill, Skills } from "./skills.js";
import { Usage } from "./usage.js";
import { Webhook, Webhooks } from "./webhooks.js";

// A list, and one of its entries where the address names one.
const either = (List, One) => () => (route.value.id ? html`<${One} />` : html`<${List} />`);

export const PAGES = [
  { id: "runs", title: "Runs", letter: "r", View: either(Runs, Run) },
  { id: "playground", title: "Playground", letter: "p", View: Playground },
  { id: "approvals", title: "Approvals", letter: "a", View: Approvals },
  { id: "containers", title: "Containers", letter: "c", View: either(Containers, Container), group: "apart" },
  { id: "files", title: "Files", letter: "f", View: Files },
  { id: "skills", title: "Skills", letter: "s", View: either(Skills, Skill) },
  { id: "webhooks", title: "Webhooks", letter: "w", View: either(Webhooks, Webhook) },
  { id: "usage", title: "Usage", letter: "u", View: Usage, group: "apart" },
  { id: "keys", title: "Keys and tenants", letter: "k", View: Keys },
  { id: "doctor", title: "Doctor", letter: "d", View: Doctor },
];
