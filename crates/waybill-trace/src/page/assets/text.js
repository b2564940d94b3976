// Texts that strangers wrote, as text: nothing in them becomes markup, moves other text, or stays unseen.

// Whatever a reader would not see as it is: controls, marks that turn text around, what takes no room, spaces that are none,
// what no font has, and heaps of accents.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Cn}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]|[^\S ]|\p{M}{3,}/gu;

const SHORT = new Map([["\n", "\\n"], ["\r", "\\r"], ["\t", "\\t"], ["\0", "\\0"]]);

// What needs no quotes in a shell.
const BARE = /^[\p{L}\p{N}_@%+=:,./~^-]+$/u;

/** An element with properties and children; strings become text, and nothing else can be given. */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child !== undefined && child !== null && child !== false));
  return made;
}

/** How one character that cannot be seen is written. */
export function escapeOf(character) {
  const short = SHORT.get(character);
  if (short) return short;
  return Array.from(character, (one) => {
    const code = one.codePointAt(0);
    return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u{${code.toString(16).padStart(4, "0")}}`;
  }).join("");
}

/** The text for places that take text alone, such as labels and the canvas. */
export function plain(text) {
  return String(text).replace(UNSEEN, escapeOf);
}

/** The text as nodes: what cannot be seen stands out, and `words` that are looked for are marked. */
export function visible(text, words = []) {
  const nodes = [];
  let from = 0;
  for (const found of String(text).matchAll(UNSEEN)) {
    if (found.index > from) nodes.push(...marked(text.slice(from, found.index), words));
    nodes.push(element("span", { class: "esc", title: nameOf(found[0]) }, escapeOf(found[0])));
    from = found.index + found[0].length;
  }
  if (from < text.length) nodes.push(...marked(text.slice(from), words));
  return nodes;
}

function nameOf(characters) {
  const codes = Array.from(characters, (one) => `U+${one.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`);
  return `${codes.join(" ")}: written as an escape, because it could not be seen or would move other text`;
}

/** Text with every place marked where one of `words` stands. */
function marked(text, words) {
  const wanted = words.filter((word) => word.length > 1);
  if (!wanted.length) return [text];
  const low = text.toLowerCase();
  // A letter may change its length in lower case; then places would not agree.
  if (low.length !== text.length) return [text];
  const nodes = [];
  let from = 0;
  for (;;) {
    let at = -1;
    let length = 0;
    for (const word of wanted) {
      const found = low.indexOf(word, from);
      if (found >= 0 && (at < 0 || found < at)) [at, length] = [found, word.length];
    }
    if (at < 0) break;
    if (at > from) nodes.push(text.slice(from, at));
    nodes.push(element("mark", {}, text.slice(at, at + length)));
    from = at + length;
  }
  if (from < text.length) nodes.push(text.slice(from));
  return nodes;
}

/** One word of a command line, in quotes if a shell would need them. */
export function word(text, words = []) {
  if (BARE.test(text)) return visible(text, words);
  const quote = () => element("span", { class: "quote" }, "'");
  return [quote(), ...visible(text, words), quote()];
}

/** A command line, cut after `limit` characters. */
export function commandLine(all, { words = [], hidden = [], limit = Infinity } = {}) {
  const nodes = [];
  let left = limit;
  for (const [index, one] of all.entries()) {
    if (left <= 0) break;
    if (index) nodes.push(" ");
    if (hidden.includes(index)) {
      nodes.push(hiddenMark(one, words));
      left -= 8;
      continue;
    }
    const part = one.length > left ? one.slice(0, left) : one;
    nodes.push(...word(part, words));
    left -= part.length + 1;
  }
  return nodes;
}

/** Stands where an argument looked like a secret; `rest` is what was left of it. */
export function hiddenMark(rest, words = []) {
  const title = "This argument looked like a secret, so it was never recorded";
  return element("span", { title }, ...visible(rest, words), element("span", { class: "hid" }, "hidden"));
}

/** A command line that may be pasted into a shell: controls are written as escapes. */
export function pasteable(all) {
  return all.map((one) => {
    if (one && BARE.test(one) && one === plain(one)) return one;
    if (one === plain(one)) return `'${one.replaceAll("'", `'\\''`)}'`;
    const escaped = one.replaceAll("\\", "\\\\").replaceAll("'", "\\'").replace(UNSEEN, bashEscape);
    return `$'${escaped}'`;
  }).join(" ");
}

function bashEscape(characters) {
  return Array.from(characters, (one) => {
    const code = one.codePointAt(0);
    return code < 0x80 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\U${code.toString(16).padStart(8, "0")}`;
  }).join("");
}

/** A number with a thin space between thousands. */
export function number(count) {
  return String(count).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

/** `1 session`, `2 sessions`. */
export function counted(count, one, many = `${one}s`) {
  return `${number(count)} ${count === 1 ? one : many}`;
}
