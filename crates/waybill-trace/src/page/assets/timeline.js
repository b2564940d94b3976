// Sessions over time: a lane for each that runs beside others. Drawn on a canvas, because there may be ten thousand.

import { paintOf } from "./colours.js";
import { arrange, endOf, within } from "./lanes.js";
import { personText, stateText, warningsOf, what } from "./people.js";
import { commandLine, counted, element, plain } from "./text.js";
import { clock, day, dayKey, fineClock, marks, span } from "./time.js";
import { Brush } from "./brush.js";

const GUTTER = 168;
const LANE = 18;
const BAR = 15;
const PAD = 5;
const RIGHT = 14;

export class Timeline {
  /** `choose(id)`, and `zoom(from, to)` for a range that was drawn. */
  constructor(root, { choose, zoom }) {
    this.axis = root.querySelector("#axis");
    this.bars = root.querySelector("#bars");
    this.scroller = root.querySelector("#lanes");
    this.inner = root.querySelector("#lanes-inner");
    this.tip = root.querySelector("#tip");
    this.more = root.querySelector("#lanes-more");
    this.more.addEventListener("click", () => { this.scroller.scrollTop += this.scroller.clientHeight - LANE; });
    this.root = root;
    Object.assign(this, { groups: [], sessions: [], from: 0, to: 1, now: 0, chosen: "", beside: new Set(), by: "user" });
    this.brush = new Brush(this.bars, {
      pick: (x, y) => { const found = this.hit(x, y); if (found) choose(found.id); },
      range: (left, right) => zoom(this.time(left), this.time(right)),
      over: (x, y) => this.hover(x, y),
      change: () => this.soon(),
      from: GUTTER,
    });
    this.scroller.addEventListener("scroll", () => { this.hover(); this.soon(); }, { passive: true });
    new ResizeObserver(() => this.soon()).observe(root);
  }

  show(sessions, { from, to, now, by }) {
    Object.assign(this, { sessions, from, to: Math.max(to, from + 1), now, by });
    this.groups = arrange(sessions, by, now);
    let top = 0;
    for (const group of this.groups) {
      group.top = top;
      group.height = Math.max(group.lanes.length * LANE, LANE) + 2 * PAD;
      top += group.height;
    }
    this.height = top;
    this.inner.style.height = `${top}px`;
    this.bars.setAttribute("aria-label", this.describe());
    this.soon();
  }

  describe() {
    const most = Math.max(0, ...this.groups.map((group) => group.lanes.length));
    const names = this.by === "pod" ? "pods" : "users";
    return `${this.sessions.length} sessions of ${this.groups.length} ${names}, up to ${most} at once; the list below has them all`;
  }

  /** Marks the chosen session, and those that were in its container at the same time. */
  choose(id, beside = [], reveal = false) {
    this.chosen = id;
    this.beside = new Set(beside);
    if (reveal) this.reveal();
    this.soon();
  }

  reveal() {
    for (const group of this.groups) {
      const lane = group.lanes.findIndex((sessions) => sessions.some(({ id }) => id === this.chosen));
      if (lane < 0) continue;
      const top = group.top + PAD + lane * LANE;
      const { scrollTop, clientHeight } = this.scroller;
      if (top < scrollTop || top + LANE > scrollTop + clientHeight) this.scroller.scrollTop = Math.max(0, top - clientHeight / 2);
      return;
    }
  }

  soon() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  x(time) {
    return GUTTER + ((time - this.from) / (this.to - this.from)) * (this.width - GUTTER - RIGHT);
  }

  time(x) {
    const share = (x - GUTTER) / (this.width - GUTTER - RIGHT);
    return Math.round(this.from + Math.max(0, Math.min(1, share)) * (this.to - this.from));
  }

  draw() {
    this.width = this.root.clientWidth;
    const height = Math.min(this.scroller.clientHeight, Math.max(this.height ?? 0, this.scroller.clientHeight));
    const look = this.look();
    this.ticks = marks(this.from, this.to, Math.max(2, Math.floor((this.width - GUTTER) / 90)));
    this.drawAxis(look);
    const canvas = fit(this.bars, this.width, height);
    canvas.clearRect(0, 0, this.width, height);
    this.drawGrid(canvas, look, height);
    const top = this.scroller.scrollTop;
    for (const group of this.groups) {
      if (group.top + group.height < top || group.top > top + height) continue;
      this.drawGroup(canvas, look, group, group.top - top, height);
    }
    this.brush.draw(canvas, height, look);
    this.drawMore(top + height);
  }

  /** Says what is further down: a list that ends at an edge looks complete. */
  drawMore(bottom) {
    const below = this.groups.filter((group) => group.top + group.height > bottom + 1).length;
    this.more.hidden = !below;
    if (below) this.more.textContent = `${counted(below, this.by === "pod" ? "pod" : "user")} further down ↓`;
  }

  /** Forgets the colours: light became dark, or the other way round. */
  repaint() {
    this.colours = undefined;
    this.soon();
  }

  /** Colours as the sheet has them now. */
  look() {
    if (this.colours) return this.colours;
    const style = getComputedStyle(this.root);
    const probe = (name) => {
      this.root.style.outlineColor = `var(${name})`;
      return style.outlineColor;
    };
    this.colours = {
      text: probe("--text"), muted: probe("--muted"), line: probe("--line"), strong: probe("--strong-line"),
      bad: probe("--bad"), warn: probe("--warn"), accent: probe("--accent"), panel: probe("--panel"), font: style.fontFamily,
    };
    this.root.style.outlineColor = "";
    return this.colours;
  }

  drawAxis(look) {
    const canvas = fit(this.axis, this.width, 24);
    canvas.clearRect(0, 0, this.width, 24);
    canvas.textBaseline = "middle";
    let free = -Infinity;
    for (const { at, text, day: newDay } of this.ticks) {
      const x = this.x(at);
      const words = [newDay, text].filter(Boolean).join(" ");
      canvas.font = `${newDay ? 600 : 400} 12px ${look.font}`;
      const width = canvas.measureText(words).width;
      if (x < free || x + width > this.width) continue;
      canvas.fillStyle = newDay ? look.text : look.muted;
      canvas.fillText(words, x + 3, 12);
      free = x + width + 12;
    }
  }

  drawGrid(canvas, look, height) {
    canvas.fillStyle = look.line;
    for (const { at } of this.ticks) canvas.fillRect(Math.round(this.x(at)), 0, 1, height);
    canvas.fillRect(GUTTER - 1, 0, 1, height);
  }

  drawGroup(canvas, look, group, top, height) {
    canvas.fillStyle = look.line;
    canvas.fillRect(0, top + group.height - 1, this.width, 1);
    this.drawLabel(canvas, look, group, Math.max(top, Math.min(0, top + group.height - LANE - 2 * PAD)));
    canvas.save();
    canvas.beginPath();
    canvas.rect(GUTTER, 0, this.width - GUTTER, height);
    canvas.clip();
    for (const [index, lane] of group.lanes.entries()) {
      const y = top + PAD + index * LANE;
      if (y + LANE < 0 || y > height) continue;
      for (const session of within(lane, this.from, this.to, this.now)) this.drawBar(canvas, look, session, y);
    }
    canvas.restore();
  }

  drawLabel(canvas, look, group, top) {
    const middle = top + PAD + LANE / 2;
    let x = 14;
    if (this.by === "user") {
      const { colour } = paintOf(group.user ?? null);
      canvas.fillStyle = colour;
      canvas.fillRect(x, middle - 5, 10, 10);
      x += 18;
    }
    const count = String(group.sessions.length);
    canvas.textBaseline = "middle";
    canvas.font = `400 12px ${look.font}`;
    canvas.fillStyle = look.muted;
    const width = canvas.measureText(count).width;
    canvas.fillText(count, GUTTER - 12 - width, middle);
    canvas.font = `550 13px ${look.font}`;
    canvas.fillStyle = look.text;
    canvas.fillText(shortened(canvas, plain(group.name), GUTTER - 24 - width - x), x, middle);
  }

  drawBar(canvas, look, session, y) {
    const left = Math.max(this.x(session.started), GUTTER - 4);
    const end = endOf(session, this.now);
    const right = Math.min(this.x(end), this.width + 4);
    const width = Math.max(right - left, 2.5);
    const isChosen = session.id === this.chosen;
    const { colour, ink, pattern } = paintOf(session.user);
    const stands = !this.chosen || isChosen || this.beside.has(session.id);
    canvas.globalAlpha = stands ? 1 : 0.28;
    canvas.fillStyle = colour;
    rounded(canvas, left, y, width, BAR, Math.min(3, width / 2));
    canvas.fill();
    if (pattern !== "plain" && width > 6) hatch(canvas, pattern, left, y, width);
    if (session.state === "exited" && session.code !== 0 && width > 3) {
      canvas.fillStyle = look.bad;
      canvas.fillRect(left + width - 3, y, 3, BAR);
    }
    if (width > 46) this.drawText(canvas, look, session, left, y, width, ink);
    if (warningsOf(session).length) {
      canvas.fillStyle = look.warn;
      canvas.strokeStyle = look.panel;
      triangle(canvas, left + (width > 12 ? 8 : width / 2), y + 3);
    }
    canvas.globalAlpha = 1;
    if (!isChosen && !this.beside.has(session.id)) return;
    canvas.strokeStyle = isChosen ? look.text : look.muted;
    canvas.lineWidth = isChosen ? 2 : 1.5;
    canvas.setLineDash(isChosen ? [] : [3, 2]);
    rounded(canvas, left - 1.5, y - 1.5, width + 3, BAR + 3, 4);
    canvas.stroke();
    canvas.setLineDash([]);
  }

  drawText(canvas, look, session, left, y, width, ink) {
    const start = Math.max(left, GUTTER) + (warningsOf(session).length ? 17 : 5);
    const room = left + width - start - 6;
    if (room < 26) return;
    const command = what(session) ?? plain(session.command.join(" ").slice(0, 200));
    const words = this.by === "pod" ? `${session.user === null ? session.nobody : plain(session.user)}  ${command}` : command;
    canvas.font = `500 11px ${look.font}`;
    canvas.textBaseline = "middle";
    canvas.fillStyle = ink;
    canvas.fillText(shortened(canvas, words, room), start, y + BAR / 2 + 0.5);
  }

  /** What is at a place of the canvas. */
  hit(x, y) {
    if (x < GUTTER) return undefined;
    const top = y + this.scroller.scrollTop;
    const group = this.groups.find((one) => top >= one.top && top < one.top + one.height);
    const lane = group?.lanes[Math.floor((top - group.top - PAD) / LANE)];
    if (!lane) return undefined;
    const slack = (4 / (this.width - GUTTER)) * (this.to - this.from);
    const time = this.from + ((x - GUTTER) / (this.width - GUTTER - RIGHT)) * (this.to - this.from);
    const near = within(lane, time - slack, time + slack, this.now);
    const distance = (one) => Math.max(one.started - time, time - endOf(one, this.now), 0);
    return near.sort((one, other) => distance(one) - distance(other))[0];
  }

  hover(x, y) {
    const found = x === undefined ? undefined : this.hit(x, y);
    this.bars.classList.toggle("on", Boolean(found));
    this.tip.hidden = !found;
    if (!found) return;
    const until = found.ended === null ? stateText(found) : clock(found.ended);
    const lines = [
      element("b", {}, personText(found)), ` in ${plain(found.ns)}/${plain(found.pod)}`, element("br"),
      element("span", { class: "raw" }, ...(what(found) ? [what(found)] : commandLine(found.command, { limit: 200 }))),
      element("span", { class: "muted" }, `${fineClock(found.started)} – ${until} · ${span(endOf(found, this.now) - found.started)}`),
      ...warningsOf(found).map((text) => element("div", { class: "sign" }, `⚠ ${text}`)),
    ];
    this.tip.replaceChildren(...lines);
    const above = this.scroller.offsetTop + y;
    this.tip.style.left = `${Math.min(x + 14, Math.max(8, this.width - this.tip.offsetWidth - 8))}px`;
    const fits = above + 18 + this.tip.offsetHeight < innerHeight - this.root.getBoundingClientRect().top;
    this.tip.style.top = `${fits ? above + 18 : above - this.tip.offsetHeight - 10}px`;
  }
}

/** The range that is shown, in words. */
export function rangeText(from, to, zone) {
  const same = dayKey(from) === dayKey(to);
  const end = same ? clock(to) : `${day(to)} ${clock(to)}`;
  return `${day(from)} ${clock(from)} – ${end} ${zone}, ${span(to - from)}`;
}

function fit(canvas, width, height) {
  const scale = devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  return context;
}

function rounded(canvas, x, y, width, height, radius) {
  canvas.beginPath();
  canvas.roundRect(x, y, width, height, radius);
}

function triangle(canvas, x, y) {
  canvas.beginPath();
  canvas.moveTo(x - 5, y + 9);
  canvas.lineTo(x + 5, y + 9);
  canvas.lineTo(x, y);
  canvas.closePath();
  canvas.lineWidth = 3;
  canvas.stroke();
  canvas.fill();
}

function hatch(canvas, pattern, left, y, width) {
  canvas.save();
  canvas.clip();
  canvas.strokeStyle = canvas.fillStyle = "#ffffff55";
  canvas.lineWidth = 2;
  // Patterns hang on the page, not on the bar, so that long bars need no more strokes than can be seen.
  const [from, to] = [Math.max(left, 0), Math.min(left + width, canvas.canvas.clientWidth)];
  for (let x = Math.floor(from / 7) * 7 - BAR; x < to; x += 7) {
    canvas.beginPath();
    if (pattern === "stripes") {
      canvas.moveTo(x, y + BAR);
      canvas.lineTo(x + BAR, y);
      canvas.stroke();
    } else {
      for (const dot of [4, 11]) canvas.fillRect(x + dot, y + dot - 1, 2, 2);
    }
  }
  canvas.restore();
}

function shortened(canvas, text, room) {
  if (canvas.measureText(text).width <= room) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (canvas.measureText(`${text.slice(0, middle)}…`).width <= room) low = middle;
    else high = middle - 1;
  }
  return low ? `${text.slice(0, low)}…` : "";
}
