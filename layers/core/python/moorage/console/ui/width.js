// How wide an element is, so that a drawing fits into it.
import { useLayoutEffect, useState } from "../html.js";

// In whole pixels, and never below `least`. It is measured before anything is painted, so no drawing is ever wider than its place.
export function useWidth(box, least) {
  const [width, setWidth] = useState(least);
  useLayoutEffect(() => {
    const measure = () => setWidth(Math.max(least, Math.floor(box.current.clientWidth)));
    const watcher = new ResizeObserver(measure);
    watcher.observe(box.current);
    measure();
    return () => watcher.disconnect();
  }, []);
  return width;
}
