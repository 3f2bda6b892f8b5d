// The end of what still grows stays in sight until the reader turns back, and again once they have come back to it.
import { useEffect, useLayoutEffect, useRef, useState } from "../html.js";

const NEAR_PX = 8;
const BACKWARDS = new Set(["ArrowUp", "PageUp", "Home"]);

// On a narrow screen the page scrolls, and not the box.
const scrollerOf = (box) => (getComputedStyle(box).overflowY === "visible" ? document.getElementById("main") : box);
const endOf = (box, scroller) =>
  scroller === box ? box.scrollHeight - box.clientHeight : Math.max(0, scroller.scrollTop + box.getBoundingClientRect().bottom - scroller.getBoundingClientRect().bottom);

// `content` is all that lies in `box`. Heights are guesses until something is near, so the end moves without a word being said: the size
// of the content is watched, and only a reader lets go of the end.
export function useFollow(isGrowing) {
  const box = useRef(null);
  const content = useRef(null);
  const isPinned = useRef(isGrowing);
  const top = useRef(0); // of the scroller, at its last move
  const [isBehind, fallBehind] = useState(false);
  const toEnd = () => {
    if (!box.current) return; // what is watched may be told of after it has left the page
    isPinned.current = true;
    const scroller = scrollerOf(box.current);
    scroller.scrollTop = endOf(box.current, scroller);
    top.current = scroller.scrollTop; // no reader's move: what stands below may grow by what the content lost
    fallBehind(false);
  };
  const letGo = () => {
    isPinned.current = false;
  };
  useLayoutEffect(() => {
    if (isPinned.current) toEnd();
    else if (isGrowing) fallBehind(true);
  });
  useEffect(() => {
    const scroller = scrollerOf(box.current);
    top.current = scroller.scrollTop;
    const sizes = () => `${scroller.scrollHeight} ${scroller.clientHeight}`;
    let known = sizes();
    let finger = 0;
    const heard = {
      wheel: (event) => event.deltaY < 0 && letGo(),
      keydown: (event) => BACKWARDS.has(event.key) && letGo(),
      touchstart: (event) => (finger = event.touches[0].clientY),
      touchmove: (event) => event.touches[0].clientY > finger && letGo(),
      pointerdown: (event) => event.target === scroller && event.offsetX > scroller.clientWidth && letGo(),
      scroll: () => {
        const moved = scroller.scrollTop - top.current;
        // A page that is searched, or read aloud, scrolls without a hand; a shorter content or a higher box does too, and sizes tell that.
        if (moved < -NEAR_PX && sizes() === known) letGo();
        top.current = scroller.scrollTop;
        known = sizes();
        if (moved <= 0 || endOf(box.current, scroller) - top.current > NEAR_PX) return;
        isPinned.current = true;
        fallBehind(false);
      },
    };
    for (const [name, handle] of Object.entries(heard)) scroller.addEventListener(name, handle, { passive: true });
    const watcher = new ResizeObserver(() => isPinned.current && toEnd());
    watcher.observe(box.current);
    watcher.observe(content.current);
    return () => {
      watcher.disconnect();
      for (const [name, handle] of Object.entries(heard)) scroller.removeEventListener(name, handle);
    };
  }, []);
  return { box, content, isBehind, toEnd, letGo };
}
