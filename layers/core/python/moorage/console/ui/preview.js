// A file to look at: text as text, tables as tables, pictures as pictures. HTML of others is text here, and nothing else.
import { html, useEffect, useState } from "../html.js";
import { content, save } from "../api.js";
import { bytes } from "../model/text.js";
import { csv } from "../model/csv.js";
import { Json } from "./json.js";
import { Markdown } from "./markdown.js";
import { Button, Name, Problem, Skeleton } from "./parts.js";
import { Terminal } from "./terminal.js";

const TEXT_BYTES = 256 * 1024;
const PICTURE_BYTES = 8 * 1024 * 1024;
const ROWS_SHOWN = 200;
const PICTURES = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp", bmp: "image/bmp" };

export function Preview({ path, name, size }) {
  const [shown, show] = useState({ kind: "loading" });
  const ending = name.includes(".") ? name.split(".").at(-1).toLowerCase() : "";
  useEffect(() => {
    let isGone = false;
    let url = "";
    look(path, ending, size).then((found) => {
      if (found.url) url = found.url;
      if (isGone) URL.revokeObjectURL(url);
      else show(found);
    });
    return () => {
      isGone = true;
      if (url) URL.revokeObjectURL(url);
    };
  }, [path]);
  return html`<section class="preview" aria-label=${`Preview of ${name}`}><p class="line"><b><${Name}>${name}</${Name}></b><span class="muted number">${bytes(size)}</span><${Button} icon="download" onClick=${() => save(path, name)}>Save</${Button}></p>
    <${Shown} shown=${shown} name=${name} ending=${ending} size=${size} /></section>`;
}

async function look(path, ending, size) {
  if (PICTURES[ending]) {
    if (size > PICTURE_BYTES) return { kind: "large" };
    const answer = await content(path);
    return answer.ok ? { kind: "picture", url: URL.createObjectURL(new Blob([answer.data], { type: PICTURES[ending] })) } : { kind: "problem", message: answer.message };
  }
  const answer = size === 0 ? { ok: true, data: new Blob([]) } : await content(path, { bytesMax: TEXT_BYTES });
  if (!answer.ok) return { kind: "problem", message: answer.message };
  const data = new Uint8Array(await answer.data.slice(0, TEXT_BYTES).arrayBuffer());
  return data.includes(0) ? { kind: "binary" } : { kind: "text", text: new TextDecoder().decode(data) };
}

function Shown({ shown, name, ending, size }) {
  if (shown.kind === "loading") return html`<${Skeleton} rows=${3} />`;
  if (shown.kind === "problem") return html`<${Problem} message=${shown.message} />`;
  if (shown.kind === "picture") return html`<img class="figure" src=${shown.url} alt=${name} />`;
  if (shown.kind !== "text") return html`<p class="muted">${shown.kind === "large" ? "Too large to be shown here." : "No text: save it to look at it."}</p>`;
  const isWhole = size <= TEXT_BYTES;
  return html`${!isWhole && html`<p class="muted">The first ${bytes(TEXT_BYTES)}.</p>`}<${Text} text=${shown.text} ending=${ending} name=${name} isWhole=${isWhole} />`;
}

function Text({ text, ending, name, isWhole }) {
  if (ending === "json" && isWhole) {
    try {
      return html`<${Json} value=${JSON.parse(text)} depth=${2} />`;
    } catch {
      // It only is called so.
    }
  }
  if (ending === "md") return html`<${Markdown} text=${text} />`;
  if (ending === "csv" || ending === "tsv") {
    const [head = [], ...rows] = csv(text, ending === "tsv" ? "\t" : ",", ROWS_SHOWN + 1);
    return html`<div class="scroll" tabindex="0" role="region" aria-label=${name}><table class="plain-table number"><thead><tr>${head.map((cell, at) => html`<th scope="col" key=${at}>${cell}</th>`)}</tr></thead>
      <tbody>${rows.map((row, at) => html`<tr key=${at}>${row.map((cell, column) => html`<td key=${column}>${cell}</td>`)}</tr>`)}</tbody></table></div>${rows.length >= ROWS_SHOWN && html`<p class="muted">The first ${ROWS_SHOWN} rows.</p>`}`;
  }
  return html`<${Terminal} text=${text} stream="stdout" label=${name} fromStart=${true} />`;
}
