// Which view the address names, and where the focus goes when it changes.

const main = document.getElementById("main");

const nowhere = () => ({
  title: "not found",
  page: "",
  nodes: [
    heading("There is no such page"),
    element("p", {}, "These results have nothing of that name. ", element("a", { href: "#/board" }, "All boards"), "."),
  ],
});

const rulesView = () => ({ title: "rules", page: "rules", nodes: [rulesText()] });

const rulesText = () => {
  const text = element("div", { class: "prose" }, document.getElementById("rules").content.cloneNode(true));
  text.querySelector("h1")?.setAttribute("tabindex", "-1");
  return text;
};

const VIEWS = {
  overall: overallView,
  board: boardView,
  entry: entryView,
  compare: compareView,
  claims: claimsView,
  rules: rulesView,
  malformed: nowhere,
};

const viewOf = ([name, ...rest]) => {
  if (name === undefined) return startView();
  return Object.hasOwn(VIEWS, name) ? VIEWS[name](...rest) : nowhere();
};

let current = null;

const show = () => {
  const focused = document.activeElement?.dataset?.key;
  colours.forget();
  const view = viewOf(route());
  endViews();
  main.replaceChildren(...view.nodes);
  document.title = `${view.title} · lgbench leaderboard`;
  for (const anchor of document.querySelectorAll("[data-page]")) {
    if (anchor.dataset.page === view.page) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
  view.shown?.(main);
  if (current !== null) settle(view, focused);
  current = view.page;
};

// A facet that was used keeps the focus and the place; any other change starts at the heading.
const settle = (view, key) => {
  const again = key && [...main.querySelectorAll("[data-key]")].find((candidate) => candidate.dataset.key === key);
  if (again) again.focus({ preventScroll: true });
  else main.querySelector("h1")?.focus({ preventScroll: true });
  if (!again || view.page !== current) window.scrollTo(0, 0);
};

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names the view
  main.focus();
});
window.addEventListener("hashchange", show);
window.addEventListener("scroll", hideTooltip, { passive: true });
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") hideTooltip();
});
show();
