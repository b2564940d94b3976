// The page: keeps the view in the address, fetches what it asks for, and lets the parts draw it.

import * as api from "./api.js";
import { SOURCES } from "./branches.js";
import { setUsers } from "./colours.js";
import { Detail } from "./detail.js";
import { Filters } from "./filters.js";
import { enter, showGate } from "./gate.js";
import { listen } from "./keys.js";
import { endOf } from "./lanes.js";
import { SessionList } from "./list.js";
import { Live } from "./live.js";
import { overview } from "./overview.js";
import { startSettings } from "./settings.js";
import { counted, element, number, plain } from "./text.js";
import { rangeText, Timeline } from "./timeline.js";
import { meant, rfc3339, zoneName } from "./time.js";
import { address, exactly, FILTERS, filterQuery, isFiltered, read, wanted } from "./view.js";

const $ = (id) => document.getElementById(id);

class Page {
  view = read(location.search);
  sessions = [];
  now = 0;
  coverage = { source: null, lost: 0, gaps: [], since: null };
  beside = [];

  constructor() {
    this.filters = new Filters($("filters"), (part, done) => this.change(part, done));
    this.list = new SessionList($("list"), $("rows"), (id) => this.choose(id));
    this.timeline = new Timeline($("timeline"), { choose: (id) => this.choose(id), zoom: (from, to) => this.zoom(from, to) });
    this.detail = new Detail($("detail"), {
      choose: (id) => this.choose(id),
      close: () => this.choose(""),
      filter: (name, value) => this.change({ [name]: value }, true),
      process: (name) => this.go({ process: name }, true),
      link: () => this.copyLink(),
      locked: () => this.locked(false),
      reload: () => this.showDetail(),
      say,
      shown: (answer, asked) => this.shown(answer, asked),
    });
    this.live = new Live({
      query: () => filterQuery(this.view),
      heard: (changes) => this.merge(changes),
      missed: () => this.load({ keep: true }),
      locked: () => this.locked(false),
    });
    window.addEventListener("popstate", () => this.restore());
    $("fresh").addEventListener("click", () => { this.list.scroller.scrollTop = 0; $("fresh").hidden = true; });
    $("list").addEventListener("scroll", () => { if (this.list.isAtTop) $("fresh").hidden = true; }, { passive: true });
    this.startTimelineBar();
    startSettings({ repaint: () => this.repaint(), exportQuery: () => filterQuery(this.view), locked: () => this.locked(false), say });
    listen(this);
  }

  startTimelineBar() {
    document.querySelectorAll("[data-by]").forEach((button) => button.addEventListener("click", () => this.group(button.dataset.by)));
    $("zoom-in").addEventListener("click", () => this.scale(0.5));
    $("zoom-out").addEventListener("click", () => this.scale(2));
    $("zoom-all").addEventListener("click", () => this.change({ since: "", until: "" }, true));
  }

  async start() {
    const entered = await enter().catch(() => undefined);
    if (entered === false) return this.locked(true);
    return this.load({});
  }

  locked(wasUsed) {
    this.live.stop();
    $("main").hidden = true;
    document.querySelector(".top").hidden = true;
    showGate($("gate"), wasUsed, () => location.reload());
  }

  /** Takes a new view into the address; `quiet` if going back should not stop at it. */
  go(part, quiet) {
    this.view = { ...this.view, ...part };
    const to = address(this.view);
    if (to === location.pathname + location.search) return;
    if (quiet) history.replaceState(null, "", to);
    else history.pushState(null, "", to);
  }

  restore() {
    const before = this.view;
    this.view = read(location.search);
    if (FILTERS.some((name) => before[name] !== this.view[name])) this.load({ detail: true });
    else this.drawTimeline(), this.showDetail();
  }

  /** Filters that somebody changed. */
  change(part, done) {
    const same = Object.entries(part).every(([name, value]) => this.view[name] === value);
    if (same && !done) return undefined;
    this.go(part, !done);
    this.filters.show(this.view, this.now);
    return same ? undefined : this.load({});
  }

  async load({ keep = false, detail = false }) {
    this.loading?.abort();
    this.loading = new AbortController();
    const { signal } = this.loading;
    let answer;
    try {
      const asked = api.get(`/api/sessions?${filterQuery(this.view)}`, { signal });
      if (!this.started) await Promise.all([asked, this.loadFacets()]);
      answer = await asked;
    } catch (error) {
      if (!signal.aborted) this.failed(error);
      return;
    }
    this.answered(answer, keep);
    if (detail || !this.started) this.showDetail();
    this.started = true;
    this.live.start(answer.mark);
  }

  /** Names of the whole record, whatever the filters are. */
  async loadFacets() {
    const facets = await api.get("/api/facets");
    this.cover(facets.coverage);
    this.users = new Set(facets.users);
    setUsers(facets.users);
    this.filters.suggest(facets);
  }

  /** Says at all times where programs are known from, and louder if some may be missing. */
  cover(coverage) {
    this.coverage = coverage;
    const [name, meaning] = SOURCES[coverage.source] ?? ["not collected", "Nothing collects programs now: sessions are known, what runs in them is not."];
    const place = $("coverage");
    place.textContent = coverage.lost ? `Programs: ${name}, ${counted(coverage.lost, "event")} lost` : `Programs: ${name}`;
    place.title = [meaning, coverage.whyNotBetter && plain(coverage.whyNotBetter)].filter(Boolean).join("\n");
    place.classList.toggle("sign", coverage.source !== "ebpf" || coverage.lost > 0);
  }

  answered(answer, keep) {
    $("main").hidden = false;
    $("gate").hidden = true;
    banner("");
    Object.assign(this, { sessions: answer.sessions, now: answer.now, more: answer.more });
    this.filters.show(this.view, this.now);
    this.draw(keep);
    say(`${counted(this.sessions.length, "session")}${isFiltered(this.view) ? " match" : ""}`);
  }

  failed(error) {
    if (error instanceof api.Locked) return this.locked(false);
    $("main").hidden = false;
    const said = error instanceof api.Refused ? plain(error.message) : "the server does not answer";
    banner(`Sessions cannot be read: ${said}`, () => this.load({ keep: true }));
    if (!this.sessions.length) this.draw(false, true);
    return undefined;
  }

  draw(keep, failed = false) {
    const { sessions, now, view } = this;
    this.list.show(sessions, { now, words: wanted(view), keep });
    this.list.choose(view.session, !keep);
    const shown = this.more ? `newest ${number(sessions.length)}; narrow the time to see older ones` : number(sessions.length);
    $("count").textContent = failed ? "" : isFiltered(view) ? `${shown} match` : shown;
    this.drawTimeline();
    this.drawNothing(failed);
    this.drawTitle();
    if (!view.session) this.drawOverview();
  }

  drawTimeline() {
    const { view, now, sessions } = this;
    const ends = sessions.map((session) => endOf(session, now));
    const first = sessions.reduce((least, session) => Math.min(least, session.started), Infinity);
    const last = ends.reduce((most, end) => Math.max(most, end), -Infinity);
    let from = meant(view.since, now) ?? (sessions.length ? first : now - 3600e6);
    let to = meant(view.until, now) ?? (view.since ? now : sessions.length ? last : now);
    if (!view.since && !view.until) [from, to] = [from - (to - from) * 0.01 - 1e5, to + (to - from) * 0.01 + 1e5];
    if (to <= from) to = from + 1e6;
    Object.assign(this, { from, to });
    this.timeline.show(sessions, { from, to, now, by: view.by });
    this.timeline.choose(view.session, this.beside);
    $("range").textContent = rangeText(from, to, zoneName());
    document.querySelectorAll("[data-by]").forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.by === view.by)));
    $("zoom-all").disabled = !view.since && !view.until;
  }

  drawNothing(failed) {
    const place = $("nothing");
    place.hidden = failed || this.sessions.length > 0;
    if (place.hidden) return;
    place.replaceChildren(...(isFiltered(this.view)
      ? [element("h3", {}, "No session matches"), element("p", { class: "muted" }, "Filters find what contains their text. A longer time or fewer filters may find more."),
        element("button", { type: "button", onclick: () => this.filters.clear() }, "Clear filters")]
      : [element("h3", {}, "Nobody was in a container yet"), element("p", { class: "muted" }, "As soon as somebody is, it shows here. To try:"), element("p", {}, element("code", {}, "kubectl exec -it POD -- sh"))]));
  }

  drawOverview() {
    this.detail.stop();
    this.beside = [];
    $("detail").replaceChildren(overview(this.sessions, this.coverage, (name, value) => this.change({ [name]: value }, true)));
  }

  drawTitle() {
    const chosen = this.sessions.find((session) => session.id === this.view.session);
    const who = chosen && `${chosen.user ?? chosen.nobody} in ${chosen.ns}/${chosen.pod}`;
    document.title = who ? `${plain(who)} · Waybill trace` : "Waybill trace";
  }

  repaint() {
    this.timeline.repaint();
    this.draw(true);
    this.filters.show(this.view, this.now);
    if (this.view.session) this.showDetail();
  }

  /** Shows another session, or none. Steps of the keyboard leave no trail behind. */
  choose(id, { quiet = false, reveal = false } = {}) {
    if (id === this.view.session) return;
    this.go({ session: id, process: "" }, quiet);
    this.list.choose(id, reveal);
    this.beside = [];
    this.timeline.choose(id, [], true);
    clearTimeout(this.pause);
    // Who runs through the list asks for the last one alone.
    if (quiet) this.pause = setTimeout(() => this.showDetail(), 70);
    else this.showDetail();
  }

  showDetail() {
    const { view } = this;
    document.body.classList.toggle("chosen", Boolean(view.session));
    this.list.choose(view.session, true);
    this.timeline.choose(view.session, this.beside, true);
    this.drawTitle();
    if (view.session) this.detail.show(view.session, view.process, wanted(view), view);
    else this.drawOverview();
  }

  /** The session that was asked for by this name is there. */
  shown({ session, beside }, asked) {
    // Somebody may have gone on meanwhile.
    if (asked !== this.view.session) return;
    this.beside = beside.map(({ id }) => id);
    // A link may name a session by its audit ID.
    if (session.id !== asked) {
      this.go({ session: session.id }, true);
      this.detail.id = session.id;
      this.list.choose(session.id, true);
    }
    this.timeline.choose(session.id, this.beside, true);
  }

  /** Sessions that began or changed, and those whose programs did. */
  merge({ now, sessions, touched, coverage }) {
    this.now = now;
    if (coverage) this.cover(coverage);
    const began = this.mix(sessions);
    // Somebody new: their name can be chosen from now on.
    if (began.some(({ user }) => user !== null && !this.users.has(user))) this.loadFacets().catch(() => undefined);
    const atTop = this.list.isAtTop;
    if (sessions.length) this.draw(true);
    if (began.length) this.announce(began, atTop);
    if (touched.includes(this.view.session)) this.detail.refresh();
  }

  /** Puts changed sessions in their places; returns those that are new. */
  mix(sessions) {
    const changed = new Map(sessions.map((session) => [session.id, session]));
    const kept = this.sessions.map((session) => {
      const newer = changed.get(session.id);
      changed.delete(session.id);
      return newer ?? session;
    });
    const began = [...changed.values()];
    this.sessions = began.length ? [...began, ...kept].sort((one, other) => other.started - one.started || (one.id < other.id ? 1 : -1)) : kept;
    return began;
  }

  announce(began, atTop) {
    const [last] = began;
    say(began.length === 1 ? `${plain(last.user ?? last.nobody)} began ${last.kind} in ${plain(last.ns)}/${plain(last.pod)}` : `${counted(began.length, "new session")}`);
    if (atTop) return;
    const button = $("fresh");
    button.dataset.count = (button.hidden ? 0 : Number(button.dataset.count)) + began.length;
    button.textContent = `${counted(Number(button.dataset.count), "new session")} ↑`;
    button.hidden = false;
  }

  group(by) {
    this.go({ by }, true);
    this.drawTimeline();
  }

  zoom(from, to) {
    this.change({ since: rfc3339(from), until: rfc3339(Math.max(to, from + 1000)) }, true);
  }

  scale(factor) {
    const chosen = this.sessions.find((session) => session.id === this.view.session);
    const middle = factor < 1 && chosen ? (chosen.started + endOf(chosen, this.now)) / 2 : (this.from + this.to) / 2;
    const half = Math.max(((this.to - this.from) * factor) / 2, 50e3);
    this.zoom(middle - half, middle + half);
  }

  only(name) {
    const session = this.chosenSession();
    if (!session) return;
    if (name === "user" && session.user !== null) this.change({ user: exactly(session.user) }, true);
    if (name === "pod") this.change({ pod: exactly(`${session.ns}/${session.pod}`) }, true);
    if (name === "moment") this.zoom(session.started, endOf(session, this.now));
  }

  chosenSession() {
    return this.sessions.find((session) => session.id === this.view.session);
  }

  /** The address with times that mean the same tomorrow. */
  async copyLink() {
    const fixed = { ...this.view };
    for (const name of ["since", "until"]) if (fixed[name]) fixed[name] = rfc3339(meant(fixed[name], this.now));
    await navigator.clipboard.writeText(location.origin + address(fixed));
    say("The link is copied.");
    banner("Link copied. Whoever opens it needs their own way in: waybill trace --serve on this node.", undefined, "note");
    setTimeout(() => banner("", undefined, "note"), 4000);
  }
}

/** Says something to those who listen to the page. */
function say(text) {
  $("say").textContent = text;
}

/** A line over everything; `note`s do not push out what is wrong. */
export function banner(text, again, kind = "bad") {
  const place = $("banner");
  if (kind === "note" && place.classList.contains("bad") && !place.hidden) return;
  place.className = kind === "bad" ? "banner bad" : "banner";
  place.replaceChildren(text, again ? element("button", { type: "button", onclick: again }, "Try again") : "");
  place.hidden = !text;
}

const page = new Page();
page.start();
