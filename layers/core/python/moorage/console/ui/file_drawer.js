// A file of a container, over the page that named it.
import { html, useEffect, useRef } from "../html.js";
import { get } from "../api.js";
import { drawer } from "../state.js";
import { address } from "../router.js";
import { useData } from "./data.js";
import { Problem, Skeleton } from "./parts.js";
import { Preview } from "./preview.js";

export function FileDrawer({ containerId, fileId, name }) {
  const box = useRef(null);
  const path = `containers/${encodeURIComponent(containerId)}/files/${encodeURIComponent(fileId)}`;
  const file = useData((signal) => get(path, {}, signal), [path]);
  useEffect(() => box.current.showModal(), []);
  return html`<dialog class="sheet drawer" ref=${box} aria-label=${`File ${name}`} onClose=${() => (drawer.value = null)} onClick=${(event) => event.target === box.current && box.current.close()}>
    <form method="dialog" class="line end-line"><a href=${address("containers", containerId, { file: fileId })} onClick=${() => box.current.close()}>Open its container</a><button class="button">Close</button></form>
    ${file.data ? html`<${Preview} path=${`${path}/content`} name=${name} size=${file.data.bytes} />` : file.problem ? html`<${Problem} message=${file.problem} onAgain=${file.reload} />` : html`<${Skeleton} rows=${3} />`}</dialog>`;
}
