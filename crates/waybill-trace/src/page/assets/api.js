// The way to the server. Each request shows the key that the one-time link brought; the cookie alone opens nothing.

const KEY = "waybill-page-key";

/** The server does not know this browser. */
export class Locked extends Error {}

/** The server answered that it cannot. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Changes a one-time token for access. */
export async function open(token) {
  const answer = await fetch("/api/open", { method: "POST", headers: { "content-type": "text/plain" }, body: token });
  if (!answer.ok) throw new Locked(await answer.text());
  localStorage.setItem(KEY, await answer.text());
}

async function request(path, options = {}) {
  const headers = { "x-waybill-key": localStorage.getItem(KEY) ?? "" };
  const answer = await fetch(path, { ...options, headers, cache: "no-store" });
  if (answer.status === 401) throw new Locked(await answer.text());
  if (!answer.ok) throw new Refused(answer.status, (await answer.text()).trim());
  return answer;
}

export async function get(path, options) {
  return (await request(path, options)).json();
}

export async function blob(path) {
  return (await request(path)).blob();
}

/** Calls `hear(event, data)` for each event until the stream ends. */
export async function stream(path, signal, hear) {
  const answer = await request(path, { signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const messages = (rest + value).split("\n\n");
    rest = messages.pop();
    for (const message of messages) {
      const fields = Object.fromEntries(message.split("\n").map((line) => {
        const colon = line.indexOf(":");
        return [line.slice(0, colon), line.slice(colon + 1).trimStart()];
      }));
      hear(fields.event ?? "", fields.data ? JSON.parse(fields.data) : undefined);
    }
  }
}
