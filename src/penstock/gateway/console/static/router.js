// Addresses and pages: every state has an address, links work as links, back goes back.

export const BASE = "/console";

// place("topics", name, "messages") -> /console/topics/<name>/messages
export function place(...parts) {
  return [BASE, ...parts.filter((part) => part !== undefined && part !== "").map(encodeURIComponent)].join("/");
}

export function withQuery(path, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== null && value !== "" && value !== false) query.set(name, value === true ? "1" : value);
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

export class Router {
  // `routes`: [[["topics", ":name", ":tab?"], load], …]; `show(load, parameters, query)` draws a page.
  constructor(routes, show) {
    this.routes = routes;
    this.show = show;
    this.shown = null;
  }

  start() {
    addEventListener("popstate", () => {
      // A step inside the page, as of the skip link: drawn again, the page would lose the focus it just got.
      if (here() !== this.shown) this.draw(false);
    });
    document.addEventListener("click", (event) => {
      const link = event.target.closest("a[href]");
      const isOurs = link && link.origin === location.origin && (link.pathname === BASE || link.pathname.startsWith(`${BASE}/`));
      if (!isOurs || link.target || link.hasAttribute("download") || event.defaultPrevented) return;
      if (event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
      // The skip link, and others inside the page.
      if (link.hash && link.pathname === location.pathname) return;
      event.preventDefault();
      this.go(link.pathname + link.search);
    });
    this.draw(false);
  }

  go(path) {
    history.pushState(null, "", path);
    this.draw(true);
  }

  // The same page with other parameters: the address follows, the page does what is needed by itself.
  update(parameters, isStep = false) {
    const path = withQuery(location.pathname, parameters);
    if (path === here()) return;
    history[isStep ? "pushState" : "replaceState"](null, "", path);
    this.shown = here();
  }

  draw(isMove) {
    this.shown = here();
    const parts = location.pathname.split("/").slice(1).map(decode);
    const rest = parts[0] === "console" ? parts.slice(1).filter((part) => part !== "") : [];
    for (const [pattern, load] of this.routes) {
      const parameters = match(pattern, rest);
      if (parameters) return this.show(load, parameters, Object.fromEntries(new URLSearchParams(location.search)), isMove);
    }
    return this.show(null, {}, {}, isMove);
  }
}

function here() {
  return location.pathname + location.search;
}

function match(pattern, parts) {
  if (parts.length > pattern.length) return null;
  const parameters = {};
  for (const [index, step] of pattern.entries()) {
    const part = parts[index];
    if (step.startsWith(":")) {
      const isOptional = step.endsWith("?");
      if (part === undefined && !isOptional) return null;
      parameters[step.slice(1).replace("?", "")] = part;
    } else if (step !== part) return null;
  }
  return parameters;
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
