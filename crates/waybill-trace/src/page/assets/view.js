// What is looked at, and nothing else: it is in the address, so that the address is the finding.

export const FILTERS = ["q", "user", "pod", "namespace", "command", "variable", "since", "until", "warnings", "probes"];
const CHOICES = ["session", "process", "by"];

/** Reads an address. */
export function read(search) {
  const given = new URLSearchParams(search);
  const view = {};
  for (const name of [...FILTERS, ...CHOICES]) view[name] = given.get(name) ?? "";
  if (view.by !== "pod") view.by = "user";
  return view;
}

/** The part of the address that servers are asked with. */
export function filterQuery(view) {
  const query = new URLSearchParams();
  for (const name of FILTERS) if (view[name]) query.set(name, view[name]);
  return query.toString();
}

/** The address of a view. */
export function address(view) {
  const query = new URLSearchParams(filterQuery(view));
  if (view.by === "pod") query.set("by", "pod");
  if (view.session) query.set("session", view.session);
  if (view.session && view.process) query.set("process", view.process);
  // Readable where that is allowed: people look at addresses.
  const text = query.toString().replaceAll("%2F", "/").replaceAll("%3A", ":");
  return text ? `/?${text}` : "/";
}

export function isFiltered(view) {
  return FILTERS.some((name) => view[name]);
}

/** Words to mark in commands: what is searched for, in lower case. */
export function wanted(view) {
  const words = view.q.toLowerCase().split(/\s+/);
  return [...words, view.command.toLowerCase()].map(unquoted).filter(Boolean);
}

export function unquoted(text) {
  return /^".*"$/.test(text) ? text.slice(1, -1) : text;
}

/** A filter that finds exactly this. */
export function exactly(text) {
  return `"${text}"`;
}
