// The pages, in the order of the rail. `letter` follows g.
import { Runs } from "./runs.js";
import { Run } from "./run.js";
import { route } from "../state.js";
import { html } from "../html.js";

const RunsOrRun = () => (route.value.id ? html`<${Run} />` : html`<${Runs} />`);

export const PAGES = [
  { id: "runs", title: "Runs", letter: "r", View: RunsOrRun },
];
