// The gateway's API: every answer that is no success becomes an ApiError with the sentence that the gateway sent.

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function address(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (Array.isArray(value)) value.forEach((one) => query.append(name, one));
    else if (value !== undefined && value !== null && value !== "" && value !== false) query.set(name, value === true ? "1" : value);
  }
  const text = query.toString();
  return `/api/${path}${text ? `?${text}` : ""}`;
}

export async function get(path, parameters, signal) {
  const answer = await ask(address(path, parameters), { signal });
  return answer.json();
}

export async function post(path, body, signal) {
  const answer = await ask(`/api/${path}`, {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal,
  });
  return answer.json();
}

// A stream of JSON lines, each handed to `take` as soon as it is there.
export async function lines(path, parameters, take, signal) {
  const answer = await ask(address(path, parameters), { signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) if (part) take(JSON.parse(part));
  }
  if (rest) take(JSON.parse(rest));
}

async function ask(url, options) {
  let answer;
  try {
    answer = await fetch(url, { credentials: "same-origin", ...options });
  } catch (failure) {
    if (failure.name === "AbortError") throw failure;
    throw new ApiError(0, "The gateway does not answer. Is it still running?");
  }
  if (answer.ok) return answer;
  let message = `The gateway answered ${answer.status}.`;
  try {
    message = (await answer.json()).message || message;
  } catch {
    // No JSON: something between the gateway and this page answered.
  }
  throw new ApiError(answer.status, message.charAt(0).toUpperCase() + message.slice(1));
}

// Moments of charts. Closed when the page is left; the browser connects anew by itself.
export function live(parameters, { history, moment, failed }, signal) {
  const source = new EventSource(address("live", parameters));
  source.addEventListener("history", (event) => history(JSON.parse(event.data)));
  source.addEventListener("moment", (event) => moment(JSON.parse(event.data)));
  source.addEventListener("error", () => failed?.());
  signal.addEventListener("abort", () => source.close());
}
