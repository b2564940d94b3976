// The tree of programs, as rows.

import { commandLine, counted, element, hiddenMark, number, pasteable, plain, visible } from "./text.js";
import { copyButton } from "./people.js";
import { flatten, grow, mentions, openAbove, processName } from "./tree.js";
import { fineClock, span, stamp } from "./time.js";
import { VirtualRows } from "./virtual.js";

const BRANCH = 30;
const DEEPEST = 12;
// So much of an argument is shown before somebody asks for all of it.
const SHORT = 2048;

export const SOURCES = {
  ebpf: ["eBPF", "The kernel told of every program as it was started."],
  connector: ["proc connector", "The kernel told of every program, and what it was had to be looked up: very short ones may be missing."],
  scan: ["scans", "Processes were looked for now and then: what began and ended between two looks is missing."],
};

export class Branches {
  /** `whole(process)` fetches one program with all its arguments; `chosen(name)` hears which one is open. */
  constructor(scroller, { words, whole, chosen }) {
    Object.assign(this, { words, whole, tell: chosen, list: [], active: 0, open: undefined });
    this.host = element("div", { class: "rows" });
    this.box = element("div", { class: "tree", role: "tree", tabindex: "0", "aria-label": "Programs that ran in this session" }, this.host);
    this.rows = new VirtualRows(scroller, this.host, BRANCH, (index) => this.row(index));
    this.host.addEventListener("click", (event) => this.click(event));
    this.box.addEventListener("focus", () => this.rows.redraw(this.active));
  }

  stop() {
    this.rows.stop();
  }

  /** Shows programs; those that a reader closed or opened stay so. */
  show(processes, { from, to }) {
    const closed = new Set(this.nodes?.filter((node) => !node.open).map((node) => processName(node.process)));
    const name = this.list[this.active] && processName(this.list[this.active].process);
    Object.assign(this, { from, to: Math.max(to, from + 1) }, grow(processes));
    for (const node of this.nodes) node.open = !closed.has(processName(node.process));
    this.found = this.nodes.filter((node) => mentions(node.process, this.words));
    this.refresh(name);
  }

  refresh(name) {
    this.list = flatten(this.roots);
    const at = name ? this.list.findIndex((node) => processName(node.process) === name) : 0;
    this.active = Math.max(0, at);
    const open = this.open && this.list.findIndex((node) => processName(node.process) === this.open.name);
    if (open === undefined || open < 0) this.rows.open = undefined;
    else this.rows.open = { index: open, extra: this.open.extra };
    this.rows.draw(this.list.length);
  }

  get current() {
    return this.list[this.active]?.process;
  }

  row(index) {
    const node = this.list[index];
    const { process } = node;
    const isActive = index === this.active;
    const isOpen = this.open?.name === processName(process);
    const siblings = node.parent ? node.parent.children : this.roots;
    const row = element("div", {
      class: isActive ? "branch active" : "branch", id: `branch-${index}`, role: "treeitem", "data-index": index,
      "aria-level": node.depth + 1, "aria-setsize": siblings.length, "aria-posinset": node.place,
      "aria-expanded": node.children.length ? String(node.open) : undefined, "aria-selected": String(isActive), "aria-label": this.label(node),
    },
    element("span", { class: "cell when", title: stamp(process.started) }, fineClock(process.started)),
    this.what(node),
    userId(node),
    ending(process),
    element("span", { class: "cell took right" }, took(process)),
    this.fall(process));
    if (isOpen) row.append(this.open.box);
    return row;
  }

  label({ process, became }) {
    const words = plain(process.arguments.join(" ") || process.program).slice(0, 200);
    const hidden = process.hidden ? `, ${counted(process.hidden, "hidden argument")}` : "";
    return `${became ? "became " : ""}${words}${hidden}, process ${process.pid}, user id ${process.uid}, ${endText(process)}, at ${fineClock(process.started)}`;
  }

  what(node) {
    const { process } = node;
    const cell = element("span", { class: "cell what" });
    for (let depth = Math.min(node.depth, DEEPEST); depth > 0; depth -= 1) cell.append(element("span", { class: "twig" }));
    const knot = node.children.length ? (node.open ? "▾" : "▸") : "";
    cell.append(element("span", { class: "knot", "data-knot": node.children.length > 0 }, knot));
    if (node.became) cell.append(element("span", { class: "became", title: "The same process ran this program next" }, "became"));
    if (process.moved) cell.append(element("span", { class: "sign", title: process.moved }, "⚠ "));
    const [first, ...rest] = process.arguments;
    const line = element("span", { class: "raw" },
      element("b", { class: "program" }, ...visible(baseOf(process), this.words)), " ",
      ...commandLine(first === undefined ? [] : rest, { words: this.words, hidden: process.hiddenAt.map((at) => at - 1), limit: 240 }),
      process.cut || process.short ? "…" : "");
    cell.append(line);
    if (!node.open) cell.append(element("span", { class: "became" }, ` +${number(node.below)}`));
    return cell;
  }

  fall(process) {
    const scale = 100 / (this.to - this.from);
    const mark = element("i", { class: failed(process) ? "fail" : "" });
    const left = Math.max(0, Math.min(99, (process.started - this.from) * scale));
    const end = process.ended ?? (process.running ? this.to : process.started);
    mark.style.left = `${left}%`;
    mark.style.width = `${Math.max(0, Math.min(100 - left, (end - process.started) * scale))}%`;
    return element("span", { class: "fall", "aria-hidden": "true" }, mark);
  }

  click(event) {
    if (event.target.closest(".more")) return;
    const row = event.target.closest("[data-index]");
    if (!row) return;
    const index = Number(row.dataset.index);
    this.setActive(index);
    if (event.target.closest("[data-knot]")) this.toggle(index);
    else this.details(index);
  }

  setActive(index) {
    const before = this.active;
    this.active = Math.max(0, Math.min(this.list.length - 1, index));
    this.rows.redraw(before);
    this.rows.redraw(this.active);
    this.box.setAttribute("aria-activedescendant", `branch-${this.active}`);
  }

  /** Moves to another row and shows it. */
  go(index) {
    this.setActive(index);
    this.rows.reveal(this.active, 2 * BRANCH);
    this.rows.redraw(this.active);
  }

  /** Moves to the next program that is looked for. */
  seek(steps) {
    if (!this.found.length) return;
    const now = this.list[this.active];
    const at = this.found.indexOf(now);
    const next = at < 0 ? (steps > 0 ? this.found.findIndex((node) => node.process.started >= now.process.started) : -1) : at + steps;
    this.goTo(this.found.at(((next % this.found.length) + this.found.length) % this.found.length));
  }

  goTo(node) {
    openAbove(node);
    this.list = flatten(this.roots);
    this.rows.draw(this.list.length);
    this.go(this.list.indexOf(node));
  }

  /** Shows the program of this name, and all of it. */
  openNamed(name) {
    const node = this.nodes.find((one) => processName(one.process) === name);
    if (!node) return false;
    this.goTo(node);
    this.details(this.active);
    return true;
  }

  toggle(index, open = !this.list[index].open) {
    const node = this.list[index];
    if (!node.children.length) return;
    node.open = open;
    this.refresh(processName(node.process));
  }

  /** Opens all that is known of one program, or closes it. */
  details(index) {
    const node = this.list[index];
    const name = processName(node.process);
    const closes = this.open?.name === name;
    const before = this.rows.open?.index;
    this.open = undefined;
    this.rows.setOpen(undefined);
    if (before !== undefined) this.rows.redraw(before);
    this.tell(closes ? "" : name);
    if (closes) return;
    this.open = { name, extra: 0, box: this.more(node) };
    this.rows.redraw(index);
    new ResizeObserver(() => this.measure()).observe(this.open.box);
    this.measure();
    this.rows.reveal(index, BRANCH);
  }

  measure() {
    if (!this.open?.box.isConnected) return;
    const index = this.list.findIndex((node) => processName(node.process) === this.open.name);
    const extra = this.open.box.offsetHeight + 14;
    if (index < 0 || (extra === this.open.extra && this.rows.open?.index === index)) return;
    this.open.extra = extra;
    this.rows.setOpen(index, extra);
  }

  more({ process }) {
    const box = element("div", { class: "more" });
    const pairs = [
      ["Program", element("span", { class: "raw" }, ...visible(process.program, this.words))],
      ["Process", `${process.pid}, started by ${process.parent}`],
      ["User id", String(process.uid)],
      ["Started", `${stamp(process.started)}${fraction(process.started)}`],
      ["Ended", process.ended === null ? endText(process) : `${stamp(process.ended)}${fraction(process.ended)}, ${endText(process)}`],
      ["Known from", SOURCES[process.source]?.[0] ?? process.source],
      ...(process.moved ? [["Moved", process.moved]] : []),
    ];
    box.append(element("dl", { class: "pairs" }, ...pairs.flatMap(([term, value]) => [element("dt", {}, term), element("dd", {}, value)])));
    const list = element("ul", { class: "arguments", "aria-label": "Arguments" });
    box.append(list);
    this.fillArguments(list, process, false);
    return box;
  }

  fillArguments(list, process, everything) {
    let left = everything ? Infinity : SHORT;
    const items = [];
    for (const [index, one] of process.arguments.entries()) {
      if (left <= 0) break;
      const text = one.length > left ? one.slice(0, left) : one;
      left -= text.length + 1;
      const content = process.hiddenAt.includes(index) ? [hiddenMark(one, this.words)] : visible(text, this.words);
      items.push(element("li", { class: "raw" }, element("span", {}, ...(one === "" ? [element("span", { class: "quote" }, "''")] : content))));
    }
    list.replaceChildren(...items);
    const size = process.arguments.reduce((sum, one) => sum + one.length + 1, 0);
    if (!everything && (process.short || left <= 0)) list.append(this.showAll(list, process, size));
    else if (process.cut) list.append(element("p", { class: "muted" }, "The record has no more of the arguments than this: longer ones are cut when they are recorded."));
    if (process.arguments.length) list.append(element("p", {}, copyButton(() => pasteable(process.arguments), "Copy command")));
  }

  showAll(list, process, size) {
    const length = process.length ?? size;
    const button = element("button", { type: "button" }, `Show all ${number(length)} characters`);
    button.addEventListener("click", async () => {
      button.disabled = true;
      this.fillArguments(list, process.short ? await this.whole(process) : process, true);
    });
    return element("p", {}, button);
  }

  /** What the tree does with a key; whether it did something. */
  key(key) {
    const node = this.list[this.active];
    if (!node) return false;
    const page = Math.max(1, Math.floor(this.rows.scroller.clientHeight / BRANCH) - 2);
    const moves = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, PageDown: page, PageUp: -page, g: -Infinity, Home: -Infinity, G: Infinity, End: Infinity };
    if (key in moves) this.go(this.active + moves[key]);
    else if (key === "Enter" || key === " ") this.details(this.active);
    else if (key === "ArrowLeft" && node.open && node.children.length) this.toggle(this.active, false);
    else if (key === "ArrowLeft" && node.parent) this.go(this.list.indexOf(node.parent));
    else if (key === "ArrowRight" && !node.open) this.toggle(this.active, true);
    else if (key === "ArrowRight" && node.children.length) this.go(this.active + 1);
    else return false;
    return true;
  }
}

function baseOf(process) {
  const name = process.arguments[0] || process.program;
  return name.slice(name.lastIndexOf("/") + 1) || name;
}

/** Stands out where it is another one than that of the program above. */
function userId({ process, parent }) {
  const changed = parent !== null && parent.process.uid !== process.uid;
  const title = changed ? `user id ${process.uid}, another one than that of the program above` : `user id ${process.uid}`;
  return element("span", { class: changed ? "cell uid other right" : "cell uid right", title }, String(process.uid));
}

function failed(process) {
  return process.signal !== null || (process.exit !== null && process.exit !== 0);
}

function took(process) {
  return process.ended === null ? "" : span(process.ended - process.started);
}

function fraction(time) {
  return `.${String(Math.floor(time) % 1e6).padStart(6, "0")}`;
}

/** How a program ended, in words. */
export function endText(process) {
  if (process.signal !== null) return `signal ${process.signal}`;
  if (process.exit !== null) return `exit ${process.exit}`;
  if (process.replaced) return "ran another program";
  return process.running ? "running" : "end not known";
}

function ending(process) {
  const kind = failed(process) ? "fail" : process.running && process.ended === null ? "run" : "muted";
  const text = process.replaced ? "replaced" : endText(process);
  return element("span", { class: `cell ${kind}`, title: endText(process) }, text);
}
