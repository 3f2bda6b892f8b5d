// A file of a container: a click shows it over the page, which stays where it is. In a tab of its own it opens in its container.
import { html } from "../html.js";
import { drawer } from "../state.js";
import { address } from "../router.js";
import { Name } from "./parts.js";
import { Icon } from "./icons.js";

export function FileLink({ containerId, fileId, name, isChip = true }) {
  const open = (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    drawer.value = { containerId, fileId, name };
  };
  return html`<a class=${isChip ? "chip" : ""} href=${address("containers", containerId, { file: fileId })} onClick=${open}>${isChip && html`<${Icon} name="files" size=${12} />`}<${Name}>${name}</${Name}></a>`;
}
