// Programs of a session as a tree. What a process ran next stands below what it ran before.

/** Names a program within its session. */
export function processName(process) {
  return `${process.pid}@${process.started}`;
}

/** Makes the tree; `processes` are in the order of their start. Returns its roots, and all nodes in that order. */
export function grow(processes) {
  const nodes = processes.map((process) => ({ process, children: [], parent: null, depth: 0, open: true, became: false, place: 0, below: 0 }));
  // The program that each process runs, as time goes by.
  const running = new Map();
  const roots = [];
  for (const node of nodes) {
    const { pid, above } = node.process;
    const earlier = running.get(pid);
    const replaces = earlier !== undefined && earlier.process.replaced;
    const parent = replaces ? earlier : above === null ? undefined : running.get(above);
    node.became = replaces;
    running.set(pid, node);
    if (parent === undefined || parent === node) {
      node.place = roots.push(node);
      continue;
    }
    node.parent = parent;
    node.depth = parent.depth + 1;
    node.place = parent.children.push(node);
  }
  // Children stand behind their parents.
  for (let at = nodes.length - 1; at >= 0; at -= 1) {
    const { parent, below } = nodes[at];
    if (parent) parent.below += 1 + below;
  }
  return { roots, nodes };
}

/** The nodes that can be seen, top to bottom, without those in closed branches. */
export function flatten(roots) {
  const all = [];
  const waiting = [...roots].reverse();
  while (waiting.length) {
    const node = waiting.pop();
    all.push(node);
    if (node.open) for (let at = node.children.length - 1; at >= 0; at -= 1) waiting.push(node.children[at]);
  }
  return all;
}

/** Opens everything above a node. */
export function openAbove(node) {
  for (let above = node.parent; above; above = above.parent) above.open = true;
}

/** Whether one of `words` stands in a program or its arguments. */
export function mentions(process, words) {
  if (!words.length) return false;
  const text = `${process.program}\n${process.arguments.join("\n")}`.toLowerCase();
  return words.some((word) => text.includes(word));
}
