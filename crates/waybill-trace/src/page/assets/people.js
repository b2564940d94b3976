// What list, timeline and detail all show: who, where, in which state.

import { initials, paintOf } from "./colours.js";
import { element, plain, visible } from "./text.js";

/** The small field with a user's colour, pattern and initials. It repeats what stands beside it, so it is not read out. */
export function swatch(user) {
  const { colour, ink, pattern } = paintOf(user);
  const made = element("span", { class: "swatch", "aria-hidden": "true" }, user ? initials(user) : "–");
  made.style.color = ink;
  made.style.background = pattern === "plain" ? colour : `${patternOf(pattern)}, ${colour}`;
  return made;
}

function patternOf(pattern) {
  if (pattern === "stripes") return "repeating-linear-gradient(135deg, transparent 0 4px, #ffffff55 4px 7px)";
  return "radial-gradient(#ffffff66 1px, transparent 1.6px) 0 0 / 6px 6px";
}

/** The user's name, or who it was if it was nobody. */
export function person(session, words = []) {
  const name = element("span", { class: "name" });
  if (session.user === null) name.append(element("span", { class: "muted" }, session.nobody));
  else name.append(...visible(session.user, words));
  if (session.by !== null) name.append(element("span", { class: "muted" }, " by "), ...visible(session.by));
  return element("span", { class: "person" }, swatch(session.user), name);
}

/** For labels: the same as text. */
export function personText(session) {
  const name = session.user === null ? session.nobody : plain(session.user);
  return session.by === null ? name : `${name}, by ${plain(session.by)}`;
}

/** How a session is or ended. */
export function state(session) {
  const made = element("span", { class: "state" });
  if (session.state === "running") made.append(element("span", { class: "run" }, "running"));
  else if (session.state === "exited") {
    made.append(element("span", { class: session.code ? "fail" : "fine" }, `exit ${session.code}`));
  } else made.append(element("span", { class: "over" }, stateText(session)));
  const signs = warningsOf(session);
  if (signs.length) made.append(element("span", { class: "sign", title: signs.join("\n") }, "⚠"));
  return made;
}

export function stateText(session) {
  switch (session.state) {
    case "running": return "running";
    case "exited": return `exit ${session.code}`;
    case "over": return "over";
    default: return "not there";
  }
}

/** What a reader must know before believing what is shown. */
export function warningsOf(session) {
  const all = [];
  if (session.moved) all.push(`${session.moved} moved ${session.moved === 1 ? "process" : "processes"}`);
  if (session.lost) all.push(`${session.lost} lost ${session.lost === 1 ? "event" : "events"}`);
  return all;
}

/** What was asked for, as a command line or in words. */
export function what(session) {
  if (session.kind === "attach") return session.stdin === false ? "attached, reads" : "attached, reads and types";
  return undefined;
}

/** Puts text on the clipboard, and says so in the button for a moment. */
export function copyButton(text, label = "Copy") {
  const button = element("button", { type: "button", class: "link" }, label);
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text());
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = label; }, 1500);
  });
  return button;
}
