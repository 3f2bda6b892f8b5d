// A key, pasted once. It stays in this tab and goes with it.
import { html, useState } from "../html.js";
import { call } from "../api.js";
import { command, enter } from "../state.js";
import { Icon } from "../ui/icons.js";
import { Code } from "../ui/parts.js";

const canSignIn = document.querySelector('meta[name="sign-in"]')?.content === "yes";

export function Login() {
  const [secret, type] = useState("");
  const [problem, say] = useState("");
  const submit = async (event) => {
    event.preventDefault();
    const answer = await call("GET", "me", { secret: secret.trim() });
    if (answer.ok) enter(secret.trim(), answer.data);
    else say(answer.message);
  };
  return html`<main class="login">
    <form onSubmit=${submit}>
      <h1><${Icon} name="anchor" size=${28} />moorage</h1>
      <p>What runs, what it waits for, what it did and what it cost.</p>
      ${canSignIn && html`<a class="button primary" href="sign-in">Sign in</a>`}
      <label for="key">API key</label>
      <input id="key" type="password" autocomplete="off" spellcheck="false" placeholder="sk-moorage-…" value=${secret} onInput=${(event) => type(event.target.value)} />
      ${problem && html`<p class="bad" role="alert">${problem}</p>`}
      <button class=${canSignIn ? "button" : "button primary"} type="submit" disabled=${!secret.trim()}>Open</button>
      <p class="muted">The key stays in this tab and is forgotten with it. Or let the command line open the console, without a key to paste:</p>
      <${Code} text=${command("console")} />
    </form></main>`;
}
