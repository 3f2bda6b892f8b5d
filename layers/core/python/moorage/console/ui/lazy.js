// A component whose module is fetched when it is first drawn.
import { html, useEffect, useState } from "../html.js";
import { Problem, Skeleton } from "./parts.js";

export function lazy(load, name) {
  let View = null;
  return function Lazy(properties) {
    const [problem, say] = useState("");
    const [round, again] = useState(0);
    useEffect(() => {
      if (View) return undefined;
      let isGone = false;
      say("");
      load().then(
        (module) => {
          View = module[name];
          if (!isGone) again(round + 1);
        },
        () => isGone || say("This part of the console could not be loaded."),
      );
      return () => (isGone = true);
    }, [round]);
    if (View) return html`<${View} ...${properties} />`;
    return problem ? html`<${Problem} message=${problem} onAgain=${() => again(round + 1)} />` : html`<${Skeleton} />`;
  };
}
