// The list of sessions, newest first, with a line for each day.

import { person, personText, state, stateText, warningsOf, what } from "./people.js";
import { commandLine, element, plain, visible } from "./text.js";
import { clock, day, dayKey, span } from "./time.js";
import { endOf } from "./lanes.js";
import { VirtualRows } from "./virtual.js";

const ROW = 52;

export class SessionList {
  /** `choose(id)` is called when somebody picks a session. */
  constructor(scroller, host, choose) {
    this.scroller = scroller;
    this.items = [];
    this.sessions = [];
    this.chosen = "";
    this.words = [];
    this.now = 0;
    this.rows = new VirtualRows(scroller, host, ROW, (index) => this.row(index));
    host.addEventListener("click", (event) => {
      const row = event.target.closest("[data-id]");
      if (row) choose(row.dataset.id);
    });
  }

  /** Shows these sessions. What a reader looks at stays where it is. */
  show(sessions, { now, words = this.words, keep = false }) {
    const anchor = keep ? this.anchor() : undefined;
    Object.assign(this, { sessions, now, words });
    this.arrange();
    this.rows.draw(this.items.length);
    if (anchor) this.restore(anchor);
    else if (!keep) this.scroller.scrollTop = 0;
  }

  arrange() {
    this.items = [];
    this.places = new Map();
    let before;
    for (const [index, session] of this.sessions.entries()) {
      const key = dayKey(session.started);
      if (key !== before) this.items.push({ day: session.started });
      before = key;
      this.places.set(session.id, this.items.length);
      this.items.push({ session, index });
    }
  }

  /** The first session that can be seen, and where; none at the top, where new ones are to be seen. */
  anchor() {
    const { scrollTop } = this.scroller;
    if (scrollTop < ROW) return undefined;
    for (let at = Math.floor(scrollTop / ROW); at < this.items.length; at += 1) {
      const { session } = this.items[at];
      if (session) return { id: session.id, offset: at * ROW - scrollTop };
    }
    return undefined;
  }

  restore({ id, offset }) {
    const place = this.places.get(id);
    if (place !== undefined) this.scroller.scrollTop = place * ROW - offset;
    this.rows.fill();
  }

  get isAtTop() {
    return this.scroller.scrollTop < ROW;
  }

  /** Marks a session; `reveal` scrolls to it. */
  choose(id, reveal) {
    const before = this.places?.get(this.chosen);
    this.chosen = id;
    const place = this.places?.get(id);
    if (before !== undefined) this.rows.redraw(before);
    if (place === undefined) {
      this.scroller.removeAttribute("aria-activedescendant");
      return;
    }
    if (reveal) this.rows.reveal(place, 2 * ROW);
    this.rows.redraw(place);
    this.scroller.setAttribute("aria-activedescendant", `row-${place}`);
  }

  /** The session `steps` further down than the chosen one. */
  step(steps) {
    const at = this.places.has(this.chosen) ? this.items[this.places.get(this.chosen)].index : undefined;
    const last = this.sessions.length - 1;
    // With none chosen the first step is onto the first or the last one; an infinite one goes to its end anyway.
    const next = at === undefined && Number.isFinite(steps) ? (steps > 0 ? 0 : last) : (at ?? 0) + steps;
    return this.sessions[Math.max(0, Math.min(last, next))]?.id;
  }

  row(index) {
    const item = this.items[index];
    if (!item.session) return element("div", { class: "row day", role: "presentation" }, day(item.day));
    const { session } = item;
    const chosen = session.id === this.chosen;
    return element("div", {
      class: "row", id: `row-${index}`, role: "option", "data-id": session.id, "aria-selected": String(chosen),
      "aria-setsize": this.sessions.length, "aria-posinset": item.index + 1, "aria-label": this.label(session),
    },
    element("span", { class: "when" }, clock(session.started)),
    person(session, this.words),
    place(session, this.words),
    state(session),
    element("span", { class: "what" }, ...whatNodes(session, this.words)),
    element("span", { class: "took" }, session.state === "unknown" ? "" : span(endOf(session, this.now) - session.started)));
  }

  label(session) {
    const asked = what(session) ?? `${session.kind} ${plain(session.command.join(" ")).slice(0, 120)}`;
    const where = `in ${plain(session.ns)}/${plain(session.pod)}, container ${plain(session.container)}`;
    return [personText(session), asked, where, `at ${clock(session.started)}`, stateText(session), ...warningsOf(session)].join(", ");
  }
}

export function place(session, words = []) {
  return element("span", { class: "place name", title: plain(`${session.ns}/${session.pod}, container ${session.container}`) },
    element("span", { class: "ns" }, ...visible(session.ns, words), "/"), ...visible(session.pod, words),
    element("span", { class: "ns" }, " · ", ...visible(session.container, words)));
}

export function whatNodes(session, words) {
  const said = what(session);
  if (said) return [element("span", { class: "muted" }, said)];
  const line = element("span", { class: "raw" }, ...commandLine(session.command, { words, limit: 160 }), session.cut ? "…" : "");
  return session.kind === "exec" ? [line] : [element("span", { class: "kind" }, session.kind), " ", line];
}
