// A terminal's screen, by xterm.js. It is fetched when somebody opens a terminal, and is told to leave the page's policy as it is.
const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
const vendor = new URL("../vendor/", import.meta.url);

export async function openScreen(place, { isReadOnly, columns, rows }) {
  const { Terminal } = await import("../vendor/xterm.js");
  await stylesheet(new URL("xterm.css", vendor).href);
  const terminal = new Terminal({
    cols: columns,
    rows,
    disableStdin: isReadOnly,
    fontFamily: getComputedStyle(document.documentElement).getPropertyValue("--mono"),
    fontSize: 13,
    scrollback: 10_000,
    screenReaderMode: true,
    theme: theme(),
    linkHandler: { activate: () => {} }, // An address that a program names is text, and leads nowhere.
  });
  const goBack = withoutInlineStyles();
  const dispose = terminal.dispose.bind(terminal);
  terminal.dispose = () => {
    dispose();
    goBack();
  };
  terminal.open(place);
  return terminal;
}

// Columns and rows of the size of a cell that fit into a place.
export function fitting(terminal, place) {
  const screen = terminal.element.querySelector(".xterm-screen").getBoundingClientRect();
  if (!screen.width || !place.clientWidth) return null;
  const columns = Math.floor((place.clientWidth - 16) / (screen.width / terminal.cols));
  const rows = Math.floor(place.clientHeight / (screen.height / terminal.rows));
  return { columns: Math.max(20, Math.min(400, columns)), rows: Math.max(5, Math.min(200, rows)) };
}

export function theme() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const shades = COLOURS.flatMap((name) => [[name, colour(`ansi-${name}`)], [`bright${name[0].toUpperCase()}${name.slice(1)}`, colour(`ansi-${name}`)]]);
  return { background: colour("panel"), foreground: colour("text"), cursor: colour("accent"), cursorAccent: colour("panel"), selectionBackground: colour("accent-soft"), ...Object.fromEntries(shades) };
}

function stylesheet(href) {
  if (document.querySelector(`link[href="${href}"]`)) return undefined;
  const link = Object.assign(document.createElement("link"), { rel: "stylesheet", href });
  const loaded = new Promise((resolve, reject) => Object.assign(link, { onload: resolve, onerror: () => reject(new Error("The terminal's style could not be loaded.")) }));
  document.head.append(link);
  return loaded;
}

// The page's policy lets in no style that is written into it, and xterm.js writes some. While a terminal is open, they become sheets and properties,
// which are a script's to set.
function withoutInlineStyles() {
  open += 1;
  document.createElement = (name, ...rest) => {
    if (name === "style") return sheet();
    const element = Document.prototype.createElement.call(document, name, ...rest);
    if (name === "span") element.setAttribute = (key, value) => (key === "style" ? (element.style.cssText = value) : Element.prototype.setAttribute.call(element, key, value));
    return element;
  };
  return () => {
    open -= 1;
    if (!open) delete document.createElement;
  };
}

let open = 0;

function sheet() {
  const made = new CSSStyleSheet();
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, made];
  const element = Object.assign(document.createElement("span"), { hidden: true });
  Object.defineProperty(element, "textContent", { set: (text) => made.replaceSync(text) });
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((each) => each !== made);
    Element.prototype.remove.call(element);
  };
  return element;
}
