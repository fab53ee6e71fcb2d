// Which view the address names, and where the focus goes when it changes.

const main = document.getElementById("main");

const nowhere = () => ({
  title: "not found",
  page: "",
  nodes: [
    heading("There is no such page"),
    element("p", {}, "These results have nothing of that name. ", element("a", { href: "#/task" }, "All tasks"), "."),
  ],
});

const rulesView = () => ({ title: "rules", page: "rules", nodes: [rulesText()] });

const rulesText = () => {
  const text = element("div", { class: "prose" }, document.getElementById("rules").content.cloneNode(true));
  text.querySelector("h1")?.setAttribute("tabindex", "-1");
  return text;
};

const glossaryView = (name) => ({
  title: "glossary",
  page: "glossary",
  nodes: [
    heading("Glossary"),
    element(
      "dl",
      { class: "prose" },
      INDEX.glossary.map(({ names, text }) =>
        element("div", { "data-word": names[0] }, element("dt", {}, names.join(", ")), element("dd", {}, text)),
      ),
    ),
  ],
  shown: () => {
    const own = [...main.querySelectorAll("[data-word]")].find((word) => word.dataset.word === wordOf(name ?? "")?.names[0]);
    own?.setAttribute("tabindex", "-1");
    own?.setAttribute("aria-current", "true");
    own?.focus();
    own?.scrollIntoView({ block: "center" });
  },
});

const VIEWS = {
  grid: startView,
  overall: overallView,
  task: taskView,
  entry: entryView,
  compare: compareView,
  claims: claimsView,
  claim: claimView,
  glossary: glossaryView,
  rules: rulesView,
  malformed: nowhere,
};

const viewOf = ([name = "grid", ...rest]) => (Object.hasOwn(VIEWS, name) ? VIEWS[name](...rest) : nowhere());

const notLoaded = (error) => {
  if (!(error instanceof NotLoaded)) throw error;
  return { title: "not loaded", page: "", nodes: [heading("Some data are missing"), element("p", {}, error.message)] };
};

let current = null;
let latest = 0;

// A view may load data first; meanwhile the one before stays, and another may be asked for.
const show = async () => {
  latest += 1;
  const mine = latest;
  const focused = document.activeElement?.dataset?.key;
  colours.forget();
  const view = await Promise.resolve(viewOf(route())).catch(notLoaded);
  if (mine !== latest) return;
  hideTooltip();
  main.replaceChildren(...view.nodes.filter((node) => node !== null));
  document.title = `${view.title} · lgbench leaderboard`;
  for (const anchor of document.querySelectorAll("[data-page]")) {
    if (anchor.dataset.page === view.page) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
  if (current !== null) settle(view, focused);
  view.shown?.();
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
window.addEventListener("scroll", moveTooltip, { passive: true });
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") hideTooltip();
});
show();
