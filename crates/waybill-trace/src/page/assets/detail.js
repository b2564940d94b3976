// One session: who, what, where, when; what to be careful about; who else was there; what ran; which variables.

import * as api from "./api.js";
import { Branches, SOURCES } from "./branches.js";
import { endOf } from "./lanes.js";
import { copyButton, person, stateText, swatch, what } from "./people.js";
import { commandLine, counted, element, number, pasteable, plain, visible } from "./text.js";
import { clock, day, dayKey, fineClock, span, zoneName } from "./time.js";
import { address, exactly } from "./view.js";

const LONG = 600;
// A session with more programs than this is not fetched anew with each change.
const LIVE = 5000;

export class Detail {
  /** `act` has what its links do: choose, close, filter, process, link, say. */
  constructor(root, act) {
    Object.assign(this, { root, act, id: "", words: [] });
    this.root.addEventListener("click", (event) => {
      const link = event.target.closest("a[data-session]");
      if (!link || event.metaKey || event.ctrlKey || event.shiftKey) return;
      event.preventDefault();
      act.choose(link.dataset.session);
    });
  }

  /** Fetches and shows a session, and the program `process` of it. */
  async show(id, process, words, view) {
    this.stop();
    Object.assign(this, { id, words, view });
    this.abort = new AbortController();
    const { signal } = this.abort;
    const path = `/api/sessions/${encodeURIComponent(id)}`;
    // Both are asked for at once; a rejection of the second is met where it is waited for.
    const programs = api.get(`${path}/processes`, { signal });
    programs.catch(() => undefined);
    try {
      const answer = await api.get(path, { signal });
      if (signal.aborted) return;
      this.draw(answer);
      this.act.shown(answer, id);
      this.drawProcesses(await programs, process);
    } catch (error) {
      if (signal.aborted) return;
      this.fail(error);
    }
  }

  fail(error) {
    if (error instanceof api.Locked) return this.act.locked();
    const gone = error.status === 404;
    const title = gone ? "This session is not in the record" : "The session cannot be read";
    const said = gone ? "It may be older than what is kept, or of another machine. Session and audit IDs both work in a link." : error.message;
    this.root.replaceChildren(element("div", { class: "head" }, element("h2", {}, title), element("p", { class: "muted" }, plain(said))));
    return undefined;
  }

  stop() {
    this.abort?.abort();
    this.branches?.stop();
    this.branches = undefined;
    this.id = "";
  }

  /** Something changed in this session: fetches it anew, where that is cheap. */
  async refresh() {
    if (!this.id || this.refreshing || !this.branches) return;
    if (this.total > LIVE) {
      this.root.querySelector("#stale")?.removeAttribute("hidden");
      return;
    }
    this.refreshing = true;
    const { id, abort } = this;
    const path = `/api/sessions/${encodeURIComponent(id)}`;
    try {
      const [answer, programs] = await Promise.all([api.get(path, abort), api.get(`${path}/processes`, abort)]);
      if (this.id === id && !abort.signal.aborted) this.update(answer, programs);
    } catch {
      // The banner tells of a lost connection; what is shown stays.
    } finally {
      this.refreshing = false;
    }
  }

  update(answer, programs) {
    const { branches } = this;
    this.session = answer.session;
    this.root.querySelector(".head")?.replaceWith(this.head(answer));
    this.root.querySelector(".warns")?.replaceWith(this.warnings(answer.session));
    this.root.querySelector(".beside-part")?.replaceWith(this.beside(answer));
    this.count(programs);
    branches.show(programs.processes, this.times(answer));
    this.act.shown(answer, this.id);
  }

  draw(answer) {
    const { session } = answer;
    this.answer = answer;
    this.session = session;
    this.root.replaceChildren(
      this.head(answer), this.warnings(session), this.beside(answer),
      element("div", { class: "part", id: "programs" },
        element("div", { class: "title" }, element("h3", {}, "Programs"), element("span", { class: "muted" }, "…"))),
      this.variables(session), this.asked(session));
    this.root.scrollTop = 0;
  }

  head({ session, now }) {
    const did = what(session) ? [element("span", { class: "did" }, session.stdin === false ? " attached to " : " attached and could type into ")]
      : session.kind === "debug" ? [element("span", { class: "did" }, " added a debug container to ")]
      : session.kind === "container" ? [element("span", { class: "did" }, " in ")]
      : [element("span", { class: "did" }, " ran "), element("span", { class: "raw" }, ...commandLine(session.command.slice(0, 1), { limit: 80 })), element("span", { class: "did" }, " in ")];
    const name = session.user === null ? element("span", { class: "muted" }, session.nobody) : this.filterLink("user", session.user);
    const heading = element("h2", { id: "detail-title" }, swatch(session.user), name, ...this.by(session), ...did, this.filterLink("pod", `${session.ns}/${session.pod}`));
    const ended = session.ended === null ? stateText(session) : dayKey(session.ended) === dayKey(session.started) ? fineClock(session.ended) : `${day(session.ended)} ${fineClock(session.ended)}`;
    const end = { running: ["run", "running"], exited: [session.code ? "fail" : "fine", `exit ${session.code}`] }[session.state] ?? ["over", stateText(session)];
    const facts = element("p", { class: "facts" },
      element("span", { class: "state" }, element("span", { class: end[0] }, end[1])),
      element("span", {}, element("b", {}, fineClock(session.started)), " – ", element("b", {}, ended), ` ${zoneName()}, ${day(session.started)}`),
      session.state === "unknown" ? null : element("span", {}, span(endOf(session, now) - session.started)),
      element("span", {}, "container ", element("b", { class: "name" }, ...visible(session.container))));
    const acts = element("div", { class: "acts" },
      element("button", { type: "button", class: "quiet", title: "Copy the link to this (c)", onclick: () => this.act.link() }, "Copy link"),
      element("button", { type: "button", class: "quiet", "aria-label": "Close this session", title: "Close (Esc)", onclick: () => this.act.close() }, "✕"));
    return element("div", { class: "head" }, heading, facts, acts, this.command(session));
  }

  by(session) {
    return session.by === null ? [] : [element("span", { class: "did" }, " (by "), this.filterLink("q", session.by), element("span", { class: "did" }, ")")];
  }

  /** A link that finds all of the same. */
  filterLink(name, value) {
    const view = { ...this.view, session: "", process: "", [name]: exactly(value) };
    return element("a", { class: "name", href: address(view), title: plain(`Show only ${value}`), onclick: (event) => {
      if (event.metaKey || event.ctrlKey || event.shiftKey) return;
      event.preventDefault();
      this.act.filter(name, exactly(value));
    } }, ...visible(value));
  }

  command(session) {
    if (session.command.length < 2 && (session.command[0] ?? "").length < 80) return null;
    const length = session.command.reduce((sum, one) => sum + one.length + 1, 0);
    const line = element("span", { class: "raw" }, ...commandLine(session.command, { words: this.words, limit: LONG }));
    const box = element("div", { class: "command" }, line, " ", copyButton(() => pasteable(session.command)));
    if (length > LONG) {
      const button = element("button", { type: "button", class: "link", onclick: () => {
        line.replaceChildren(...commandLine(session.command, { words: this.words }));
        button.remove();
      } }, ` … show all ${number(length)} characters`);
      line.after(button);
    }
    return box;
  }

  warnings(session) {
    const all = element("div", { class: "warns" });
    if (session.movedProcesses.length) {
      const one = session.movedProcesses.length === 1;
      all.append(element("div", { class: "warn", role: "note" },
        element("b", {}, `${counted(session.movedProcesses.length, "process", "processes")} ${one ? "was" : "were"} moved here`),
        `: nobody can be named for ${one ? "it" : "them"}.`,
        ...session.movedProcesses.map((moved) => element("span", { class: "raw" }, `${moved.pid} `, ...commandLine(moved.command, { limit: 200 }), ` (${moved.reason})`))));
    }
    if (session.lost) {
      all.append(element("div", { class: "warn", role: "note" }, element("b", {}, `${counted(session.lost, "event was", "events were")} lost`),
        " while this session ran: programs may be missing below."));
    } else if (session.source && !session.complete) {
      all.append(element("div", { class: "warn", role: "note" }, element("b", {}, "Programs may be missing: "), SOURCES[session.source][1]));
    }
    return all;
  }

  beside({ session, beside, now }) {
    if (!beside.length) return element("div", { class: "beside-part" });
    const end = endOf(session, now);
    const items = beside.map((other) => {
      const overlap = Math.min(end, endOf(other, now)) - Math.max(session.started, other.started);
      return element("li", {}, element("a", { href: address({ ...this.view, session: other.id, process: "" }), "data-session": other.id },
        person(other),
        element("span", { class: "raw" }, ...(what(other) ? [what(other)] : commandLine(other.command, { limit: 120 }))),
        element("span", { class: "muted" }, `${clock(other.started)} – ${other.ended === null ? stateText(other) : clock(other.ended)}, together ${span(overlap)}`)));
    });
    return element("div", { class: "part beside-part" },
      element("div", { class: "title" }, element("h3", {}, "In this container at the same time"), element("span", { class: "muted" }, counted(beside.length, "other session"))),
      element("ul", { class: "beside" }, ...items));
  }

  times({ session, now }) {
    return { from: session.started, to: endOf(session, now) };
  }

  count(programs) {
    this.total = programs.total;
    const shown = programs.processes.length;
    const text = shown < programs.total ? `${number(shown)} of ${number(programs.total)}` : number(programs.total);
    const place = this.root.querySelector("#program-count");
    if (place) place.textContent = text;
    return text;
  }

  drawProcesses(programs, process) {
    const part = this.root.querySelector("#programs");
    const { session } = this;
    const source = SOURCES[session.source];
    const title = element("div", { class: "title" }, element("h3", {}, "Programs"), element("span", { class: "muted", id: "program-count" }, this.count(programs)),
      source ? element("span", { class: "source", title: source[1] }, `known from ${source[0]}`) : null);
    const stale = element("button", { type: "button", class: "link", id: "stale", hidden: true, onclick: () => this.act.reload() }, "There are more now; show them");
    if (!programs.processes.length) {
      part.replaceChildren(title, ...this.noPrograms(session));
      return;
    }
    this.branches = new Branches(this.root, {
      words: this.words,
      whole: (one) => api.get(`/api/sessions/${encodeURIComponent(this.id)}/processes/${one.pid}@${one.started}`),
      chosen: (name) => this.act.process(name),
    });
    const heads = ["Started", "Program", "uid", "End", "Took", "In the session"];
    part.replaceChildren(title, stale, element("div", { class: "columns", "aria-hidden": "true" },
      ...heads.map((text, index) => element("span", { class: index === 2 || index === 4 ? "right" : "" }, text))), this.branches.box);
    this.branches.show(programs.processes, this.times(this.answer));
    if (this.branches.found.length) {
      title.querySelector("#program-count").after(element("mark", {}, `${counted(this.branches.found.length, "match", "matches")} (n)`));
      if (!process) this.branches.goTo(this.branches.found[0]);
    }
    if (process && !this.branches.openNamed(process)) this.act.say("That program is not in the record.");
  }

  noPrograms(session) {
    const none = session.kind === "attach" ? "Whoever attaches starts nothing: what they type runs as the container's own."
      : session.source ? "No program is in the record." : "Programs were not collected while this session ran.";
    const nodes = [element("p", { class: "muted" }, none)];
    if (session.live.length) {
      nodes.push(element("p", {}, "Seen in it a moment ago:"), ...session.live.map((one) => element("p", { class: "raw" }, `${one.pid} `, ...commandLine(one.command, { limit: 240 }))));
    }
    return nodes;
  }

  variables(session) {
    const rows = session.variables.flatMap(({ name, from }) => [
      element("dt", { class: "raw" }, ...visible(name, this.words)), element("dd", {}, from)]);
    return element("div", { class: "part" },
      element("div", { class: "title" }, element("h3", {}, "Variables set for this session"), element("span", { class: "muted" }, number(session.variables.length)),
        element("span", { class: "source" }, "values are never recorded")),
      rows.length ? element("dl", { class: "vars" }, ...rows) : element("p", { class: "muted" }, "None."));
  }

  asked(session) {
    const raw = (text) => element("span", { class: "raw" }, ...visible(text, this.words));
    const copied = (text) => [raw(text), copyButton(() => plain(text))];
    const pairs = [
      ["User", session.user === null ? session.nobody : raw(session.user)],
      ["User's UID", session.uid && raw(session.uid)],
      ["Acting for them", session.by === null ? "" : raw(session.by)],
      ["Groups", session.groups.length ? raw(session.groups.join(", ")) : ""],
      ["From", session.addresses.length ? raw(session.addresses.join(", ")) : ""],
      ["Audit ID", session.auditID && copied(session.auditID)],
      ["Session ID", session.session && copied(session.session)],
      ["Container ID", session.containerID && copied(session.containerID)],
    ].filter(([, value]) => value);
    return element("div", { class: "part" }, element("div", { class: "title" }, element("h3", {}, "Who asked, and the IDs")),
      element("dl", { class: "pairs" }, ...pairs.flatMap(([term, value]) => [element("dt", {}, term), element("dd", {}, ...[value].flat())])));
  }
}
