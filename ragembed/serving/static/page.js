// Loads results while you type. Every state has an address, whose page the server makes; this only replaces its parts.
"use strict";

const WAIT = 150;
const PARTS = ["facets", "results", "preview", "filters"];
const form = document.querySelector("form[role=search]");
const main = document.querySelector("main");
const announcement = document.getElementById("announcement");
let current = null;
let timer = 0;

async function load(address, change) {
  current?.abort();
  const own = (current = new AbortController());
  clearTimeout(timer);
  main.setAttribute("aria-busy", "true");
  try {
    const response = await fetch(address, { signal: own.signal });
    const text = await response.text();
    if (!response.headers.get("content-type").startsWith("text/html")) throw new Error(messageOf(text));
    show(new DOMParser().parseFromString(text, "text/html"));
    if (change) history[change](null, "", address);
  } catch (error) {
    if (own.signal.aborted) return; // a later request replaced this one
    const problem = document.createElement("p");
    problem.className = "problem";
    problem.setAttribute("role", "alert");
    problem.textContent = error instanceof TypeError ? "The server does not answer. Is it running?" : error.message;
    const again = document.createElement("a");
    again.href = address;
    again.textContent = "Try again";
    document.getElementById("results").replaceChildren(problem, again);
  }
  main.removeAttribute("aria-busy");
}

function messageOf(text) {
  try {
    return JSON.parse(text).error.message;
  } catch {
    return "The server sent an unknown answer.";
  }
}

function show(page) {
  const focused = document.activeElement?.getAttribute("href");
  const field = document.activeElement?.closest(".why-not input[name=file]");
  for (const part of PARTS) document.getElementById(part).replaceChildren(...page.getElementById(part).childNodes);
  document.title = page.title;
  main.className = page.querySelector("main").className;
  announcement.textContent = document.getElementById("count")?.textContent ?? "";
  prepare();
  if (field) document.querySelector(".why-not input[name=file]")?.focus();
  else if (focused) links().find((link) => link.getAttribute("href") === focused)?.focus({ preventScroll: true });
}

function prepare() {
  document.getElementById("help").hidden = false;
  if (!navigator.clipboard) return; // without HTTPS, browsers have it on this machine alone
  for (const button of document.querySelectorAll("button[data-copy]")) button.hidden = false;
}

function links() {
  return [...main.querySelectorAll("a")];
}

function addressOf(fields) {
  const pairs = [...new FormData(fields)].filter(([name, value]) => value && !(name === "mode" && value === "hybrid"));
  return "/?" + new URLSearchParams(pairs);
}

function later() {
  clearTimeout(timer);
  timer = setTimeout(() => load(addressOf(form), "replaceState"), WAIT);
}

form.addEventListener("input", (event) => {
  if (!event.isComposing && event.target.name !== "where") later();
});
form.addEventListener("compositionend", later);

document.addEventListener("submit", (event) => {
  if (event.target.method === "dialog") return;
  event.preventDefault();
  load(addressOf(event.target), "pushState");
});

document.addEventListener("click", (event) => {
  if (event.target.id === "help") document.getElementById("keys").showModal();
  const copied = event.target.closest("button[data-copy]");
  if (copied) {
    navigator.clipboard.writeText(copied.dataset.copy).then(
      () => (announcement.textContent = copied.textContent = "Copied"),
      () => (announcement.textContent = copied.textContent = copied.dataset.copy),
    );
    return;
  }
  const link = event.target.closest("main a");
  const plain = !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey || event.button);
  if (link && plain && link.getAttribute("href").startsWith("/")) {
    event.preventDefault();
    load(link.getAttribute("href"), "pushState");
  }
});

document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input, select, textarea");
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || document.querySelector("dialog[open]")) return;
  if (event.key === "/" && !typing) {
    event.preventDefault();
    form.elements.q.select();
  } else if (event.key === "?" && !typing) {
    document.getElementById("keys").showModal();
  } else if (event.key === "Escape") {
    const close = document.querySelector("#preview .close");
    if (close) close.click();
    form.elements.q.focus();
  } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && (!typing || event.target === form.elements.q)) {
    const places = [...document.querySelectorAll("#results .title")];
    const at = places.indexOf(document.activeElement);
    const next = event.key === "ArrowDown" ? at + 1 : at - 1;
    if (next < 0) form.elements.q.focus();
    else places[Math.min(next, places.length - 1)]?.focus();
    event.preventDefault();
  }
});

addEventListener("popstate", () => {
  const parameters = new URLSearchParams(location.search);
  for (const name of ["q", "where"]) form.elements[name].value = parameters.get(name) ?? "";
  form.elements.mode.value = parameters.get("mode") ?? "hybrid";
  const store = form.elements.store;
  if (store) store.value = parameters.get("store") ?? store.options[0].value;
  load(location.pathname + location.search, null);
});

prepare();
