// What is shown while no session is chosen: who and where, most first, each a way to filter.

import { swatch } from "./people.js";
import { counted, element, number, plain, visible } from "./text.js";
import { SOURCES } from "./branches.js";
import { clock, day, stamp, zoneName } from "./time.js";
import { exactly } from "./view.js";

const MOST = 8;

/** The overview of these sessions; `filter(name, value)` narrows them. */
export function overview(sessions, coverage, filter) {
  const users = ranked(sessions, (session) => session.user);
  const pods = ranked(sessions, (session) => `${session.ns}/${session.pod}`);
  const warned = sessions.filter((session) => session.moved || session.lost).length;
  const running = sessions.filter((session) => session.state === "running").length;
  const failed = sessions.filter((session) => session.state === "exited" && session.code).length;
  const facts = [counted(users.length, "user"), counted(pods.length, "pod"), `${number(running)} running`, failed ? `${number(failed)} failed` : ""];
  return element("div", { class: "overview" },
    element("div", { class: "head" },
      element("p", { class: "big" }, counted(sessions.length, "session")),
      element("p", { class: "facts" }, ...facts.filter(Boolean).map((text) => element("span", {}, text))),
      element("p", { class: "facts" }, spanOf(sessions))),
    warned ? element("div", { class: "warns" }, element("div", { class: "warn" },
      element("b", {}, `${counted(warned, "session has", "sessions have")} warnings`), ": moved processes or lost events. ",
      element("button", { type: "button", class: "link", onclick: () => filter("warnings", "1") }, "Show only those"))) : null,
    ranks("Users", users, (name) => filter("user", exactly(name)), true),
    ranks("Pods", pods, (name) => filter("pod", exactly(name)), false),
    record(coverage));
}

function spanOf(sessions) {
  if (!sessions.length) return "";
  const last = sessions[0].started;
  const first = sessions.at(-1).started;
  return `${day(first)} ${clock(first)} – ${day(last)} ${clock(last)} ${zoneName()}`;
}

function ranked(sessions, name) {
  const counts = new Map();
  for (const session of sessions) {
    const key = name(session);
    if (key !== null) counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  return [...counts].sort((one, other) => other[1] - one[1] || (one[0] < other[0] ? -1 : 1));
}

function ranks(title, all, choose, areUsers) {
  if (!all.length) return null;
  const most = all[0][1];
  const items = all.slice(0, MOST).map(([name, count]) => {
    const length = element("i");
    length.style.width = `${(100 * count) / most}%`;
    const button = element("button", { type: "button", class: "link person", title: plain(`Show only ${name}`), onclick: () => choose(name) },
      areUsers ? swatch(name) : null, element("span", { class: "name" }, ...visible(name)));
    return element("li", {}, button, element("span", { class: "number" }, number(count)), element("span", { class: "length", "aria-hidden": "true" }, length));
  });
  const rest = all.length > MOST ? element("p", { class: "muted" }, `and ${number(all.length - MOST)} more`) : null;
  return element("div", { class: "part" }, element("div", { class: "title" }, element("h3", {}, title)), element("ul", { class: "ranks" }, ...items), rest);
}

/** How complete the record is. */
function record(coverage) {
  const source = SOURCES[coverage.source];
  const pairs = [
    ["Programs from", source ? `${source[0]}. ${source[1]}` : "Nothing collects programs now: sessions are known, what runs in them is not."],
    ["Why not better", coverage.whyNotBetter && plain(coverage.whyNotBetter)],
    ["Kept since", coverage.since === null ? "" : `${stamp(coverage.since)} ${zoneName()}`],
    ["Lost events", coverage.lost ? number(coverage.lost) : ""],
    ...coverage.gaps.slice(-3).map((gap) => ["Gap", `${stamp(gap.from)} – ${gap.until === null ? "now" : stamp(gap.until)}: ${plain(gap.reason)}`]),
  ].filter(([, value]) => value);
  return element("div", { class: "part" }, element("div", { class: "title" }, element("h3", {}, "The record")),
    element("dl", { class: "pairs" }, ...pairs.flatMap(([term, value]) => [element("dt", {}, term), element("dd", {}, value)])));
}
