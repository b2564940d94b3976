// Many rows in a box that scrolls, of which only those exist that can be seen. All have one height; one may be open and higher.

const SPARE = 6;

export class VirtualRows {
  /** `make(index)` returns the element of a row; `host` lies in `scroller`, which may hold other things too. */
  constructor(scroller, host, height, make) {
    Object.assign(this, { scroller, host, height, make });
    this.count = 0;
    this.shown = new Map();
    this.open = undefined;
    scroller.addEventListener("scroll", () => this.fill(), { passive: true });
    this.sizes = new ResizeObserver(() => this.fill());
    this.sizes.observe(scroller);
  }

  stop() {
    this.sizes.disconnect();
    this.count = 0;
  }

  /** Draws everything that can be seen anew. */
  draw(count = this.count) {
    this.count = count;
    for (const row of this.shown.values()) row.remove();
    this.shown.clear();
    this.resize();
    this.fill();
  }

  /** Draws one row anew if it is there. */
  redraw(index) {
    const row = this.shown.get(index);
    if (!row) return;
    const made = this.place(index);
    row.replaceWith(made);
    this.shown.set(index, made);
  }

  /** One row is higher than the others by `extra`. */
  setOpen(index, extra = 0) {
    this.open = index === undefined ? undefined : { index, extra };
    this.resize();
    for (const [at, row] of this.shown) this.move(row, at);
    this.fill();
  }

  resize() {
    this.host.style.height = `${this.count * this.height + (this.open?.extra ?? 0)}px`;
  }

  top(index) {
    return index * this.height + (this.open && index > this.open.index ? this.open.extra : 0);
  }

  at(offset) {
    if (this.open && offset > this.top(this.open.index + 1)) return Math.floor((offset - this.open.extra) / this.height);
    return Math.floor(offset / this.height);
  }

  /** Where the rows begin in what scrolls. */
  offset() {
    if (this.host.parentElement === this.scroller && !this.host.previousElementSibling) return 0;
    return this.host.getBoundingClientRect().top - this.scroller.getBoundingClientRect().top + this.scroller.scrollTop;
  }

  fill() {
    if (!this.host.isConnected) return;
    const from = this.scroller.scrollTop - this.offset();
    const first = Math.max(0, this.at(from) - SPARE);
    const last = Math.min(this.count, this.at(from + this.scroller.clientHeight) + SPARE);
    for (const [index, row] of this.shown) {
      if (index >= first && index < last) continue;
      row.remove();
      this.shown.delete(index);
    }
    const fresh = document.createDocumentFragment();
    for (let index = first; index < last; index += 1) {
      if (this.shown.has(index)) continue;
      const row = this.place(index);
      this.shown.set(index, row);
      fresh.append(row);
    }
    if (fresh.childNodes.length) this.host.append(fresh);
  }

  place(index) {
    const row = this.make(index);
    this.move(row, index);
    return row;
  }

  move(row, index) {
    row.style.transform = `translateY(${this.top(index)}px)`;
  }

  /** Scrolls as little as is needed to show a row with some room around it. */
  reveal(index, margin = 0) {
    const top = this.offset() + this.top(index);
    const bottom = top + this.height + margin + (this.open?.index === index ? this.open.extra : 0);
    const { scrollTop, clientHeight } = this.scroller;
    if (top - margin < scrollTop) this.scroller.scrollTop = top - margin;
    else if (bottom > scrollTop + clientHeight) this.scroller.scrollTop = Math.min(bottom - clientHeight, top - margin);
    this.fill();
  }
}
