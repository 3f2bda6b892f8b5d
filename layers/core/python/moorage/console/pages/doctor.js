// Whether all is well, as far as it can be told from here: a line for each check, with what to do.
import { html, useEffect, useState } from "../html.js";
import { get, post, remove } from "../api.js";
import { command, me, typed } from "../state.js";
import { address } from "../router.js";
import { Acting, Button, Code, Head, Id } from "../ui/parts.js";
import { answering } from "../model/models.js";
import { isTight } from "../ui/storage.js";
import { bytes, duration, plural } from "../model/text.js";
import { Check, fail, ok, warn } from "./doctor_check.js";
import { Models } from "./doctor_models.js";

const PROBE = "echo moorage-$((6*7))";

const CHECKS = [
  ["The API answers", async () => {
    const began = performance.now();
    const answer = await get("me");
    const took = performance.now() - began;
    if (!answer.ok) return fail("The API does not answer", "Look whether the service runs ('moorage up'), and what it says of itself ('moorage logs').", answer.message);
    return took > 2000 ? warn(`The API took ${duration(took)} to answer`, "A cold start on AWS, or a busy machine. Look again; if it stays so, give the machine more, or raise provisioned_concurrency.") : ok(`The API answers in ${duration(took)}`, `version ${answer.data.version}, tenant ${answer.data.tenant}`);
  }],
  ["The models", async () => {
    const answer = await get("models");
    if (!answer.ok) return fail("The models cannot be listed", "Look at models.toml: 'moorage models' says what is wrong with it.", answer.message);
    const names = answering(answer.data.data).map((model) => model.id);
    return names.every((name) => name === "demo") ? warn("Only the scripted demo model answers", "Set OPENAI_API_KEY or MOORAGE_UPSTREAM_URL, or write a models.toml, and start again.") : ok(`${plural(names.length, "model")} configured`, names.slice(0, 8).join(", "));
  }],
  ["What they cost", async () => {
    const prices = me.value?.prices ?? [];
    const unknown = prices.filter((each) => !each.price).map((each) => each.model);
    return unknown.length ? warn(`The price of ${plural(unknown.length, "model")} is not known`, `price in models.toml says it: ${unknown.slice(0, 5).join(", ")}.`) : ok("Every model has a price");
  }],
  ["Runs of today", async () => {
    const answer = await get("usage", { group_by: "day", from: new Date().toISOString().slice(0, 10) });
    const today = answer.data?.data?.[0];
    if (!answer.ok) return fail("Usage cannot be added up", "'moorage doctor' looks whether the table can be read; 'moorage logs' has the error.", answer.message);
    if (!today) return ok("Nothing has run today");
    const failed = today.by_status.failed ?? 0;
    return failed ? warn(`${failed} of ${plural(today.responses, "run")} failed today`, html`<a href=${address("runs", "", { status: "failed" })}>Their errors, in their own words</a>`) : ok(`${plural(today.responses, "run")} today, none failed`);
  }],
  ["Paused runs", async () => {
    const answer = await get("responses", { status: "queued,in_progress", limit: 100 });
    if (!answer.ok) return fail("What runs cannot be listed", "'moorage doctor' looks whether the table can be read; 'moorage logs' has the error.", answer.message);
    const stuck = answer.data.data.filter((row) => row.waiting_for?.kind === "pause");
    return stuck.length ? warn(`${plural(stuck.length, "paused run")}`, html`Resume or stop it: <${Id} id=${stuck[0].id} href=${address("runs", stuck[0].id)} />`, stuck[0].waiting_for.detail) : ok(`${plural(answer.data.data.length, "run")} in progress, none paused`);
  }],
  ["What is stored", async () => {
    const answer = await get("me");
    if (!answer.ok) return fail("What is stored cannot be counted", "'moorage doctor' looks whether the table can be read; 'moorage logs' has the error.", answer.message);
    const { storage } = answer.data;
    const of = `${bytes(storage.used_bytes)} of ${bytes(storage.limit_bytes)}`;
    return isTight(storage) ? warn("Little room is left for files", "Delete files, containers or vector stores, or raise MOORAGE_STORED_BYTES_MAX.", of) : ok("There is room for files", of);
  }],
  ["Webhooks", async () => {
    const answer = await get("webhook_endpoints", { limit: 100 });
    if (answer.status === 404) return ok("This deployment has no webhooks");
    if (!answer.ok) return fail("Webhooks cannot be listed", "'moorage doctor' looks whether the table can be read; 'moorage logs' has the error.", answer.message);
    const bad = answer.data.data.filter((each) => each.status !== "active");
    return bad.length ? warn(`${plural(bad.length, "endpoint")} of ${answer.data.data.length} does not take what it is sent`, html`<a href=${address("webhooks", bad[0].id)}>What it answered</a>`, bad[0].name) : ok(answer.data.data.length ? `${plural(answer.data.data.length, "webhook endpoint")}, none failing` : "No webhook endpoint");
  }],
];

export function Doctor() {
  const [found, find] = useState([]);
  const [round, again] = useState(0);
  useEffect(() => {
    let isGone = false;
    find(CHECKS.map(([what]) => ({ level: "busy", what })));
    CHECKS.forEach(async ([, check], at) => {
      const said = await check();
      if (!isGone) find((before) => before.map((each, index) => (index === at ? said : each)));
    });
    return () => (isGone = true);
  }, [round]);
  return html`<${Head} title="Doctor" note=${typed("What can be told from a browser. 'moorage doctor' looks at the machine, the account and the table too.")}><${Button} onClick=${() => again(round + 1)}>Look again</${Button}></${Head}>
    <ul class="checks">${found.map((each, at) => html`<${Check} key=${at} said=${each} />`)}</ul>
    <${Models} round=${round} />
    <${Acting}><${Sandbox} /></${Acting}>
    <h2 class="pad-top">On the machine</h2><${Code} text=${command("doctor")} />`;
}

// A command in a sandbox, without a model of anybody's: the demo model plays a script. What it leaves is deleted.
function Sandbox() {
  const [said, say] = useState(null);
  const [run, setRun] = useState(null);
  const probe = async () => {
    say({ level: "busy", what: "A sandbox starts, and runs a command" });
    const script = JSON.stringify([{ shell: { commands: [PROBE] } }, { say: "{{output}}" }]);
    const began = performance.now();
    const made = await post("responses", { model: "demo", input: `\`\`\`moorage-script\n${script}\n\`\`\``, tools: [{ type: "shell", environment: { type: "container_auto" } }] });
    const took = performance.now() - began;
    if (!made.ok) return say(fail("No sandbox ran a command", "'moorage doctor' says what the machine lacks for sandboxes.", made.message));
    const printed = (made.data.output ?? []).filter((item) => item.type === "shell_call_output").flatMap((item) => item.output.map((one) => one.stdout)).join("");
    const container = made.data.tools[0]?.environment?.container_id;
    const isWell = printed.trim() === "moorage-42";
    say(isWell ? ok(`A sandbox started, ran a command and answered in ${duration(took)}`) : fail("A sandbox was asked, and did not run the command", "The run tells why; 'moorage doctor' says what the machine lacks for sandboxes."));
    if (!isWell) return setRun(made.data.id);
    await Promise.all([remove(`responses/${made.data.id}`), container && remove(`containers/${container}`)]);
    return undefined;
  };
  return html`<section class="pad-top"><${Button} icon="containers" onClick=${probe}>Try a sandbox</${Button}>${said && html`<ul class="checks" role="status"><${Check} said=${said} /></ul>`}${run && html`<p><${Id} id=${run} href=${address("runs", run)} /></p>`}</section>`;
}
