// The frame: navigation, theme, which page is shown where.

import { get } from "./api.js";
import { announce, h, icon, replace } from "./dom.js";
import { empty, problem, tag } from "./parts.js";
import { BASE, Router, place } from "./router.js";

const NAVIGATION = [
  ["overview", "Overview"], ["brokers", "Brokers"], ["topics", "Topics"], ["groups", "Consumer groups"],
  ["schemas", "Schemas"], ["spark", "Spark queries"], ["transactions", "Transactions"], ["doctor", "Doctor"],
];

const ROUTES = [
  [[], () => import("./pages/overview.js")],
  [["brokers", ":id?"], () => import("./pages/brokers.js")],
  [["topics"], () => import("./pages/topics.js")],
  [["topics", ":name", ":tab?"], () => import("./pages/topic.js")],
  [["groups"], () => import("./pages/groups.js")],
  [["groups", ":name"], () => import("./pages/group.js")],
  [["schemas"], () => import("./pages/schemas.js")],
  [["schemas", ":name"], () => import("./pages/schema.js")],
  [["spark"], () => import("./pages/spark.js")],
  [["transactions"], () => import("./pages/transactions.js")],
  [["doctor"], () => import("./pages/doctor.js")],
];

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const menu = document.getElementById("menu");
let session = null;
let leaving = new AbortController();

function drawNavigation() {
  const current = location.pathname.split("/")[2] || "overview";
  replace(nav, h("ul", {}, NAVIGATION.filter(([key]) => key !== "schemas" || session.has_registry).map(([key, label]) =>
    h("li", {}, h("a", { href: key === "overview" ? BASE : place(key), "aria-current": key === current ? "page" : null }, icon(key), label)))));
}

function openMenu(isOpen) {
  nav.classList.toggle("open", isOpen);
  menu.setAttribute("aria-expanded", String(isOpen));
}

async function show(load, parameters, query, isMove) {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  drawNavigation();
  openMenu(false);
  const context = { parameters, query, signal, router, session };
  try {
    if (!load) {
      replace(main, empty("There is no such page", "The address may be mistyped, or it comes from another version.", h("a", { class: "button", href: BASE }, "To the overview")));
      return;
    }
    const page = await load();
    if (signal.aborted) return;
    const made = await page.render(context);
    if (signal.aborted) return;
    replace(main, made);
    main.dataset.ready = location.pathname;
  } catch (failure) {
    if (signal.aborted || failure.name === "AbortError") return;
    replace(main, problem(failure, () => show(load, parameters, query, false)));
  }
  if (isMove) {
    // As a browser would after loading a page: top, and the reader knows where it is.
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
    announce(document.title);
  }
}

const router = new Router(ROUTES, show);

function setUpTheme() {
  const button = document.getElementById("theme");
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  const draw = () => {
    const label = isDark() ? "Switch to light theme" : "Switch to dark theme";
    replace(button, icon(isDark() ? "sun" : "moon"));
    button.setAttribute("aria-label", label);
    button.title = label;
  };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("penstock-theme", root.dataset.theme);
    } catch {
      // Then it lasts as long as the page.
    }
    draw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
}

async function start() {
  setUpTheme();
  menu.addEventListener("click", () => openMenu(!nav.classList.contains("open")));
  document.addEventListener("keydown", (event) => {
    // "/" goes to the search of the page, as it does elsewhere.
    const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");
    const search = main.querySelector("input[type=search]");
    if (event.key === "/" && !isTyping && search) {
      event.preventDefault();
      search.focus();
    }
  });
  if (location.pathname === "/") history.replaceState(null, "", BASE);
  try {
    session = await get("session");
  } catch (failure) {
    replace(main, problem(failure, () => location.reload()));
    return;
  }
  replace(document.getElementById("where"), session.is_readonly && tag("Read-only", "warn"), h("code", { title: `Cluster ${session.cluster_id ?? "not reached yet"}` }, session.bootstrap));
  router.start();
}

start();
