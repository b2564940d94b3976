// Changes as they happen. A page that nobody sees asks for none: browsers have few connections to one server.

import * as api from "./api.js";

const PATIENCE = 35e3;

export class Live {
  constructor({ query, heard, missed, locked }) {
    Object.assign(this, { query, heard, missed, locked, on: true, mark: undefined });
    this.button = document.getElementById("live");
    this.text = document.getElementById("live-text");
    this.button.addEventListener("click", () => this.toggle());
    document.addEventListener("visibilitychange", () => this.turn());
  }

  /** From the answer with this mark on. */
  start(mark) {
    this.mark = mark;
    this.turn();
  }

  stop() {
    this.abort?.abort();
    this.abort = undefined;
  }

  toggle() {
    this.on = !this.on;
    this.button.setAttribute("aria-pressed", String(this.on));
    this.turn();
  }

  turn() {
    this.stop();
    clearTimeout(this.timer);
    this.show(this.on ? "Live" : "Paused", false);
    if (this.on && !document.hidden && this.mark !== undefined) this.run();
  }

  async run() {
    const abort = new AbortController();
    this.abort = abort;
    // A connection that only seems to be there says nothing any more.
    const doubt = () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => abort.abort(new Error("silent")), PATIENCE);
    };
    try {
      doubt();
      await api.stream(`/api/changes?after=${this.mark}&${this.query()}`, abort.signal, (event, data) => {
        if (this.abort !== abort) return;
        doubt();
        this.hear(event, data);
      });
      this.lost(abort);
    } catch (error) {
      if (error instanceof api.Locked) this.locked();
      else this.lost(abort);
    }
  }

  hear(event, data) {
    this.show("Live", false);
    if (this.wasLost) {
      this.wasLost = false;
      this.tell("");
    }
    if (event === "changes") {
      this.mark = data.mark;
      this.heard(data);
    } else if (event === "missed") this.missed();
    else if (event === "trouble") this.tell(`The record cannot be read now: ${data.message}. What you see is from before.`);
  }

  /** Tries again soon, for as long as somebody looks. */
  lost(abort) {
    if (this.abort !== abort) return;
    this.stop();
    clearTimeout(this.timer);
    if (!this.wasLost) {
      this.wasLost = true;
      this.since = new Date();
      this.tell("Connection lost. What you see is from before; the page goes on by itself when the server is back.");
    }
    this.show("Lost", true);
    this.timer = setTimeout(() => { if (this.on && !document.hidden) this.run(); }, 1500);
  }

  show(text, lost) {
    this.text.textContent = text;
    this.button.classList.toggle("lost", lost);
  }

  tell(text) {
    const place = document.getElementById("banner");
    place.className = "banner";
    place.textContent = text;
    place.hidden = !text;
  }
}
