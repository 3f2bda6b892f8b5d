// What a search has found, the best first: how well each passage fits, where it is from, and the words in it.
import { html, useState } from "../html.js";
import { address } from "../router.js";
import { printable } from "../model/ansi.js";
import { excerpt } from "../model/passages.js";
import { Name } from "./parts.js";

export const Passages = ({ hits, query }) => html`<ol class="passages" aria-label="Passages">${hits.map((hit, at) => html`<${Passage} key=${at} hit=${hit} query=${query} number=${at + 1} />`)}</ol>`;

const NTH = new Intl.PluralRules("en", { type: "ordinal" });
const ENDS = { one: "st", two: "nd", few: "rd", other: "th" };

const Half = ({ name, rank, title }) => html`<span title=${title}>${name} <b class="number">${rank ? `${rank.place}${ENDS[NTH.select(rank.place)]}` : "no place"}</b>${rank && html` <span class="number">${rank.score.toFixed(2)}</span>`}</span>`;

// Its place by each half of the ranking; results of calls in a run have none.
const Halves = ({ ranks }) => html`<small class="line halves muted"><${Half} name="meaning" rank=${ranks.embedding} title="Its place by the likeness of embeddings, and their cosine" /><${Half} name="words" rank=${ranks.text} title="Its place by the words that it shares with the question (BM25)" /></small>`;

function Passage({ hit, query, number }) {
  const [isWhole, open] = useState(false);
  const shown = excerpt(printable(hit.text), query, { isWhole });
  const attributes = Object.entries(hit.attributes ?? {});
  return html`<li class="passage"><p class="line"><span class="muted number">${number}</span><a href=${address("files", hit.file_id)}><${Name}>${hit.filename}</${Name}></a>
      <span class="line score"><meter min="0" max="1" value=${hit.score ?? 0} aria-label="Score"></meter><span class="number">${(hit.score ?? 0).toFixed(4)}</span></span>
      ${attributes.map(([name, value]) => html`<span class="chip" key=${name}><${Name}>${`${name}: ${value}`}</${Name}></span>`)}${hit.ranks && html`<${Halves} ranks=${hit.ranks} />`}</p>
    <blockquote dir="auto">${shown.isBegun && "… "}${shown.pieces.map((piece, at) => (piece.isMarked ? html`<mark key=${at}>${piece.text}</mark>` : piece.text))}${shown.isGoing && " …"}</blockquote>
    ${(shown.isCut || isWhole) && html`<button type="button" class="ghost tiny" aria-expanded=${isWhole} aria-label=${`${isWhole ? "Less" : "All"} of passage ${number}`} onClick=${() => open(!isWhole)}>${isWhole ? "less" : "all of it"}</button>`}</li>`;
}
