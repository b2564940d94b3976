// Sessions side by side: two that overlap are never in one lane.

/** When a session is over as far as the timeline goes. */
export function endOf(session, now) {
  if (session.ended !== null) return Math.max(session.ended, session.started);
  return session.state === "running" ? Math.max(now, session.started) : session.started;
}

/** Groups of lanes, by user or by pod, in the order of their names; within one, sessions by their start. */
export function arrange(sessions, by, now) {
  const groups = new Map();
  for (const session of sessions) {
    const name = by === "pod" ? `${session.ns}/${session.pod}` : session.user ?? session.nobody;
    let group = groups.get(name);
    if (!group) groups.set(name, group = { name, user: by === "user" ? session.user : undefined, sessions: [] });
    group.sessions.push(session);
  }
  const all = [...groups.values()].sort((one, other) => (one.name < other.name ? -1 : 1));
  for (const group of all) group.lanes = pack(group.sessions, now);
  return all;
}

/** As few lanes as there are sessions at once; each session takes the first that is free. */
export function pack(sessions, now) {
  const sorted = [...sessions].sort((one, other) => one.started - other.started || (one.id < other.id ? -1 : 1));
  const lanes = [];
  // Heaps, because one user may have thousands of sessions at once.
  const busy = new Heap((one, other) => one.end - other.end);
  const free = new Heap((one, other) => one - other);
  for (const session of sorted) {
    while (busy.size && busy.top.end <= session.started) free.push(busy.pop().lane);
    const lane = free.size ? free.pop() : lanes.push([]) - 1;
    lanes[lane].push(session);
    busy.push({ end: Math.max(endOf(session, now), session.started + 1), lane });
  }
  return lanes;
}

/** The least comes out first. */
class Heap {
  #items = [];
  #compare;

  constructor(compare) {
    this.#compare = compare;
  }

  get size() {
    return this.#items.length;
  }

  get top() {
    return this.#items[0];
  }

  push(item) {
    const items = this.#items;
    let at = items.push(item) - 1;
    while (at > 0) {
      const above = (at - 1) >> 1;
      if (this.#compare(items[at], items[above]) >= 0) return;
      [items[at], items[above]] = [items[above], items[at]];
      at = above;
    }
  }

  pop() {
    const items = this.#items;
    const [least] = items;
    const last = items.pop();
    if (!items.length) return least;
    items[0] = last;
    for (let at = 0; ;) {
      let next = at;
      for (const below of [2 * at + 1, 2 * at + 2]) {
        if (below < items.length && this.#compare(items[below], items[next]) < 0) next = below;
      }
      if (next === at) return least;
      [items[at], items[next]] = [items[next], items[at]];
      at = next;
    }
  }
}

/** The sessions of a lane that can be seen between two times. */
export function within(lane, from, to, now) {
  let low = 0;
  let high = lane.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (endOf(lane[middle], now) < from) low = middle + 1;
    else high = middle;
  }
  const first = low;
  let last = first;
  while (last < lane.length && lane[last].started <= to) last += 1;
  return lane.slice(first, last);
}
