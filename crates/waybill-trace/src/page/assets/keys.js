// The keyboard.

const $ = (id) => document.getElementById(id);

/** Hears every key of the page. */
export function listen(page) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if ($("help").open || !$("gate").hidden) return;
    if (press(page, event.key, event.target)) event.preventDefault();
  });
  $("help-open").addEventListener("click", () => $("help").showModal());
}

/** Whether the key meant something. */
function press(page, key, target) {
  if (key === "Escape") return back(page, target);
  if (target.closest("input, textarea, select")) return false;
  const inTree = target.closest(".tree");
  if (inTree && page.detail.branches?.key(key)) return true;
  // Buttons and links have keys of their own.
  if (target.closest("button, a, summary") && ["Enter", " "].includes(key)) return false;
  if (!inTree && move(page, key)) return true;
  return command(page, key);
}

function move(page, key) {
  const rows = Math.max(1, Math.floor(page.list.scroller.clientHeight / page.list.rows.height) - 2);
  const steps = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, PageDown: rows, PageUp: -rows, g: -Infinity, Home: -Infinity, G: Infinity, End: Infinity }[key];
  if (steps === undefined) return false;
  const id = page.list.step(steps);
  if (id) page.choose(id, { quiet: true, reveal: true });
  $("list").focus({ preventScroll: true });
  return true;
}

function command(page, key) {
  const commands = {
    "/": () => { $("f-q").focus(); $("f-q").select(); },
    "?": () => $("help").showModal(),
    Enter: () => enter(page),
    n: () => page.detail.branches?.seek(1),
    N: () => page.detail.branches?.seek(-1),
    u: () => page.only("user"),
    p: () => page.only("pod"),
    m: () => page.only("moment"),
    b: () => page.group(page.view.by === "pod" ? "user" : "pod"),
    l: () => $("live").click(),
    t: () => $("theme").click(),
    c: () => page.copyLink(),
    "+": () => page.scale(0.5),
    "=": () => page.scale(0.5),
    "-": () => page.scale(2),
    0: () => $("zoom-all").click(),
  };
  if (!Object.hasOwn(commands, key)) return false;
  commands[key]();
  return true;
}

/** From the list into the tree of the session; with none chosen, to the first one. */
function enter(page) {
  if (!page.view.session) {
    const id = page.list.step(1);
    if (id) page.choose(id, { reveal: true });
    return;
  }
  const tree = page.detail.branches?.box;
  (tree ?? $("detail")).focus();
  page.detail.branches?.go(page.detail.branches.active);
}

/** One step out of wherever the reader is. */
function back(page, target) {
  const menu = document.querySelector("details.menu[open]");
  if (menu) menu.open = false;
  else if (target.closest("input")) {
    target.blur();
    $("list").focus({ preventScroll: true });
  } else if (target.closest("#detail")) $("list").focus({ preventScroll: true });
  else if (page.view.session) page.choose("");
  else return false;
  return true;
}
