// What a model says, as elements. Its tokens come of marked's lexer; raw HTML in it is shown as the text that it is, and pictures as links:
// nothing is fetched because a model named it.
import { html, signal, useEffect } from "../html.js";

const CHARS_MAX = 200_000;
const lexer = signal(null); // whoever was drawn before it came is drawn again
let loading = null;

export function Markdown({ text, isOpen = false }) {
  const read = lexer.value;
  useEffect(() => {
    loading ??= import("../vendor/marked.js").then((marked) => (lexer.value = marked.lexer));
  }, []);
  if (isOpen || read === null || text.length > CHARS_MAX) return html`<div class="said plain" dir="auto">${text}</div>`;
  return html`<div class="said" dir="auto">${blocks(read(text))}</div>`;
}

const blocks = (tokens) => tokens.map((token, key) => block(token, key));

function block(token, key) {
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "heading":
      return html`<p key=${key} dir="auto" class=${`heading h${token.depth}`}>${inline(token.tokens)}</p>`;
    case "code":
      return html`<pre key=${key} class="block" tabindex="0" dir="ltr">${token.text}</pre>`;
    case "blockquote":
      return html`<blockquote key=${key} dir="auto">${blocks(token.tokens)}</blockquote>`;
    case "hr":
      return html`<hr key=${key} />`;
    case "list": {
      const entries = token.items.map((item, at) => html`<li key=${at} dir="auto">${item.task ? (item.checked ? "☑ " : "☐ ") : ""}${blocks(item.tokens)}</li>`);
      return token.ordered ? html`<ol key=${key} start=${token.start || 1}>${entries}</ol>` : html`<ul key=${key}>${entries}</ul>`;
    }
    case "table":
      return html`<div key=${key} class="scroll" tabindex="0" role="group" aria-label="Table"><table class="plain-table"><thead><tr>${token.header.map((cell, at) => html`<th key=${at} scope="col" dir="auto">${inline(cell.tokens)}</th>`)}</tr></thead>
        <tbody>${token.rows.map((row, at) => html`<tr key=${at}>${row.map((cell, column) => html`<td key=${column} dir="auto">${inline(cell.tokens)}</td>`)}</tr>`)}</tbody></table></div>`;
    case "text":
      return token.tokens ? html`<span key=${key}>${inline(token.tokens)}</span>` : token.text;
    case "paragraph":
      return html`<p key=${key} dir="auto">${inline(token.tokens)}</p>`;
    default:
      return html`<p key=${key} dir="auto">${token.raw}</p>`;
  }
}

const inline = (tokens = []) => tokens.map((token, key) => piece(token, key));

function piece(token, key) {
  switch (token.type) {
    case "strong":
      return html`<strong key=${key}>${inline(token.tokens)}</strong>`;
    case "em":
      return html`<em key=${key}>${inline(token.tokens)}</em>`;
    case "del":
      return html`<del key=${key}>${inline(token.tokens)}</del>`;
    case "codespan":
      return html`<code key=${key}>${token.text}</code>`;
    case "br":
      return html`<br key=${key} />`;
    case "link":
    case "image":
      return isWeb(token.href)
        ? html`<a key=${key} href=${token.href} target="_blank" rel="noopener noreferrer nofollow" title=${token.href}>${token.text || token.href}</a>`
        : html`<span key=${key} title=${token.href}>${token.text || token.href}</span>`;
    case "escape":
    case "text":
      return token.tokens ? html`<span key=${key}>${inline(token.tokens)}</span>` : unescaped(token);
    default:
      return token.raw;
  }
}

const isWeb = (href) => /^https?:\/\//i.test(href);
const unescaped = (token) => (token.type === "escape" ? token.text : token.raw);
