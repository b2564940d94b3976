// The mouse on the timeline: a click picks, a drag draws a range, a move looks.

const DRAG = 4;

export class Brush {
  constructor(canvas, { pick, range, over, change, from }) {
    Object.assign(this, { canvas, pick, range, over, change, edge: from, start: undefined, end: undefined });
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.up(event));
    canvas.addEventListener("pointercancel", () => this.forget());
    canvas.addEventListener("pointerleave", () => this.over());
  }

  get isDragging() {
    return this.end !== undefined && Math.abs(this.end - this.start) > DRAG;
  }

  down(event) {
    if (event.button !== 0) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.start = Math.max(event.offsetX, this.edge);
  }

  move(event) {
    if (this.start === undefined) {
      this.over(event.offsetX, event.offsetY);
      return;
    }
    this.end = Math.max(event.offsetX, this.edge);
    if (this.isDragging) this.over();
    this.change();
  }

  up(event) {
    if (this.start === undefined) return;
    const [left, right] = [this.start, this.end ?? this.start].sort((one, other) => one - other);
    const drawn = this.isDragging;
    this.forget();
    if (drawn) this.range(left, right);
    else this.pick(event.offsetX, event.offsetY);
  }

  forget() {
    this.start = this.end = undefined;
    this.change();
  }

  draw(canvas, height, look) {
    if (!this.isDragging) return;
    const [left, right] = [this.start, this.end].sort((one, other) => one - other);
    canvas.globalAlpha = 0.16;
    canvas.fillStyle = look.accent;
    canvas.fillRect(left, 0, right - left, height);
    canvas.globalAlpha = 1;
    canvas.fillRect(left, 0, 1, height);
    canvas.fillRect(right, 0, 1, height);
  }
}
