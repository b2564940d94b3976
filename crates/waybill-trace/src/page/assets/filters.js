// The fields of the filter, to and from the view.

import { element, plain } from "./text.js";
import { ago, meant, parseTyped, stamp } from "./time.js";
import { FILTERS, isFiltered } from "./view.js";

const PAUSE = 160;
// More suggestions than anybody reads.
const SUGGESTED = 500;

export class Filters {
  /** `change(part, done)` hears of new filters; `done` when somebody has finished typing. */
  constructor(form, change) {
    Object.assign(this, { form, change, now: 0 });
    this.problem = form.querySelector("#time-problem");
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.read(true);
    });
    form.addEventListener("input", (event) => {
      clearTimeout(this.timer);
      const isTime = event.target.closest(".time");
      // A time that is half typed means another one.
      if (!isTime) this.timer = setTimeout(() => this.read(false), event.target.type === "checkbox" ? 0 : PAUSE);
    });
    form.addEventListener("change", () => this.read(true));
    // Without a button to submit with, browsers do nothing.
    form.addEventListener("keydown", (event) => { if (event.key === "Enter" && event.target.matches("input")) this.read(true); });
    form.querySelectorAll("[data-span]").forEach((button) => button.addEventListener("click", () => {
      this.complain("");
      this.change({ since: button.dataset.span, until: "" }, true);
    }));
    form.querySelector("#clear").addEventListener("click", () => this.clear());
  }

  clear() {
    this.complain("");
    this.change(Object.fromEntries(FILTERS.map((name) => [name, ""])), true);
  }

  /** Shows the view in the fields. One that somebody types in, or has to mend, is left alone. */
  show(view, now) {
    this.now = now;
    for (const name of FILTERS) {
      const field = this.form.elements[name];
      if (field.type === "checkbox") field.checked = Boolean(view[name]);
      else {
        const isTheirs = field === document.activeElement || field.getAttribute("aria-invalid") === "true";
        if (!isTheirs) field.value = this.shown(name, view[name]);
        field.classList.toggle("set", Boolean(view[name]) && name !== "q");
      }
    }
    this.form.querySelectorAll("[data-span]").forEach((button) => {
      button.setAttribute("aria-pressed", String(button.dataset.span === view.since && !view.until));
    });
    this.form.querySelector("#clear").hidden = !isFiltered(view);
  }

  shown(name, value) {
    if (name !== "since" && name !== "until") return value;
    if (!value || ago(value) !== undefined) return value;
    const time = meant(value, this.now);
    return time === undefined ? value : stamp(time);
  }

  read(done) {
    clearTimeout(this.timer);
    const part = {};
    for (const name of ["q", "user", "pod", "namespace", "command", "variable"]) part[name] = this.form.elements[name].value.trim();
    for (const name of ["warnings", "probes"]) part[name] = this.form.elements[name].checked ? "1" : "";
    if (done && !this.readTimes(part)) return;
    this.change(part, done);
  }

  /** Reads both times; false if one is none. */
  readTimes(part) {
    const { since, until } = this.form.elements;
    part.since = since.value.trim() && parseTyped(since.value, this.now);
    const after = part.since ? meant(part.since, this.now) : undefined;
    part.until = until.value.trim() && parseTyped(until.value, this.now, after);
    for (const field of [since, until]) field.setAttribute("aria-invalid", String(part[field.name] === undefined));
    const wrong = part.since === undefined ? "From" : part.until === undefined ? "To" : undefined;
    this.complain(wrong ? `${wrong} is no time. Write 02:10, 2026-11-17 02:10, or 15m, 2h, 7d for a time ago.` : "");
    return wrong === undefined;
  }

  complain(text) {
    this.problem.textContent = text;
    this.problem.hidden = !text;
    if (!text) for (const name of ["since", "until"]) this.form.elements[name].removeAttribute("aria-invalid");
  }

  /** Names that can be chosen from. */
  suggest({ users, pods, namespaces }) {
    const fill = (id, names) => {
      const options = names.slice(0, SUGGESTED).filter((name) => name === plain(name)).map((name) => element("option", { value: name }));
      this.form.querySelector(`#${id}`).replaceChildren(...options);
    };
    fill("users", users);
    fill("pods", pods);
    fill("namespaces", namespaces);
  }
}
