// Before the first run: the lines to type, and a button that makes one.
import { html } from "../html.js";
import { BASE, call, post } from "../api.js";
import { command, key, notify } from "../state.js";
import { go } from "../router.js";
import { Acting, Button, Code, Head, Tabs } from "../ui/parts.js";
import { useState } from "../html.js";

const url = BASE.replace(/\/$/, "");

const python = `from openai import OpenAI

client = OpenAI(base_url="${url}", api_key="sk-moorage-YOUR-KEY")
run = client.responses.create(
    model="demo",
    input="Run \`uname -a\`",
    tools=[{"type": "shell", "environment": {"type": "container_auto"}}],
)
print(run.output_text)`;

const curl = `curl ${url}/responses \\
  -H "Authorization: Bearer sk-moorage-YOUR-KEY" -H "Content-Type: application/json" \\
  -d '{"model": "demo", "input": "Run \`uname -a\`",
       "tools": [{"type": "shell", "environment": {"type": "container_auto"}}]}'`;

export function Welcome() {
  const [tab, choose] = useState("python");
  return html`<${Head} title="Runs" />
    <section class="welcome">
      <h2>Nothing has run yet</h2>
      <p>Let the demonstration run: a model, a sandbox, a table of sales, and its whole loop to look at. It takes a few seconds.</p>
      <p><${Acting}><${Button} tone="primary" icon="play" onClick=${demonstrate}>Run the demonstration</${Button}></${Acting}></p>
      <p>Or from your own program. Put your key in place of <code>sk-moorage-YOUR-KEY</code>: <code>${command("keys create")}</code> makes one. ${key.value.startsWith("sk-") ? "This page has one of its own." : ""}</p>
      <${Tabs} label="Language" tabs=${[{ id: "python", title: "Python" }, { id: "curl", title: "curl" }]} chosen=${tab} onChoose=${choose} />
      <${Code} text=${tab === "python" ? python : curl} />
    </section>`;
}

const SALES = ["date,product,region,units,revenue"];
for (let month = 0; month < 24; month += 1) {
  for (const [product, price, trend] of [["Anchor", 120, 1], ["Capstan", 84, 0.62], ["Davit", 45, 1], ["Kedge", 66, 0.81]]) {
    const units = Math.round((40 + month) * (month >= 21 ? trend : 1));
    SALES.push(`${2024 + Math.floor(month / 12)}-${String((month % 12) + 1).padStart(2, "0")}-09,${product},North,${units},${units * price}`);
  }
}
const QUESTION =
  "The file /mnt/data/sales.csv holds our sales (columns: date, product, region, units, revenue). Which products declined this quarter, compared with the one before? " +
  "Load the file into a SQLite database and query that. Then write /mnt/data/report.xlsx with the revenue of each product by quarter, and a chart of it as /mnt/data/chart.png. " +
  "Answer with the declining products and their figures, and name the files.";

export async function demonstrate() {
  const form = new FormData();
  form.set("purpose", "user_data");
  form.set("file", new File([`${SALES.join("\n")}\n`], "sales.csv", { type: "text/csv" }));
  const file = await call("POST", "files", { form });
  if (!file.ok) return notify(file.message, "bad");
  const run = await post("responses", {
    model: "demo",
    input: QUESTION,
    background: true,
    tools: [{ type: "shell", environment: { type: "container_auto", file_ids: [file.data.id] } }],
  });
  if (!run.ok) return notify(run.message, "bad");
  go("runs", run.data.id);
  return undefined;
}
