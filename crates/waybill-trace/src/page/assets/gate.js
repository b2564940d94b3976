// The door: what a browser sees that has no access yet.

import * as api from "./api.js";
import { element, plain } from "./text.js";

/** Changes the token of the address for access, and takes it out of the address. Says whether there was one that worked. */
export async function enter() {
  const token = tokenIn(location.hash);
  if (!token) return undefined;
  history.replaceState(null, "", location.pathname + location.search);
  try {
    await api.open(token);
    return true;
  } catch (error) {
    if (!(error instanceof api.Locked)) throw error;
    return false;
  }
}

/** The token in a link, or alone. */
export function tokenIn(text) {
  return /(?:^|#|open=)([A-Za-z0-9_-]{43})$/.exec(text.trim())?.[1];
}

/** Shows the door; `opened` is called when a token worked. */
export function showGate(root, wasUsed, opened) {
  const title = wasUsed ? "This link was used already, or is too old" : "This page needs a link from your terminal";
  const field = element("input", { "aria-label": "Link from the terminal", placeholder: "Paste the link here", spellcheck: "false", autocomplete: "off" });
  const problem = element("p", { class: "problem", role: "alert" });
  const form = element("form", {}, field, element("button", {}, "Open"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const token = tokenIn(field.value);
    if (!token) {
      problem.textContent = "That is no link of waybill trace --serve: it ends with # and 43 letters.";
      return;
    }
    try {
      await api.open(token);
      opened();
    } catch (error) {
      problem.textContent = error instanceof api.Locked ? "That link was used already, or is too old. Ask for a new one." : plain(error.message);
    }
  });
  const more = location.search.length > 1 ? "The finding that you were sent opens as soon as you are in." : "";
  root.replaceChildren(element("h2", {}, title),
    element("p", {}, "Each link opens the page once, in one browser. In the terminal where ", element("code", {}, "waybill trace --serve"), " runs, press ", element("kbd", {}, "Enter"), " for a new one."),
    form, problem, element("p", { class: "muted" }, more));
  root.hidden = false;
  field.focus();
}
