// Elements of the page. Names come from strangers' files: they reach the document as text or as attributes, never as HTML.

const fill = (made, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") made.addEventListener(name, value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(2).filter((child) => child !== null && child !== undefined));
  return made;
};

const element = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
const drawn = (name, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

const heading = (text) => element("h1", { tabindex: -1 }, ...breakable(text));

// An entry may wrap after its parts, not within them.
const breakable = (text) =>
  text.split(/(?<=[+])|(?=@)/).flatMap((piece, at) => (at ? [element("wbr"), piece] : [piece]));

const linkTo = (entry, ...rest) =>
  element("a", { href: linkToEntry(unranked(entry)?.entry ?? entry, ...rest), class: "entry", ...explains(`@${weightsOf(entry)}`) }, ...breakable(entry));

// One tooltip for the whole page: of words, of points of charts, of cells of the grid.
const tooltip = document.getElementById("tooltip");
let anchor = null;

const hideTooltip = () => {
  tooltip.hidden = true;
  anchor = null;
};

// Beside an element, or a rectangle of the window; above where there is no room below.
const showTooltip = (beside, ...content) => {
  anchor = beside;
  tooltip.replaceChildren(...content);
  tooltip.hidden = false;
  const { left, top, bottom } = beside instanceof Element ? beside.getBoundingClientRect() : beside;
  const { width, height } = tooltip.getBoundingClientRect();
  const above = bottom + height + 10 > window.innerHeight;
  tooltip.style.left = `${Math.max(8, Math.min(left, document.documentElement.clientWidth - width - 8))}px`;
  tooltip.style.top = `${above ? Math.max(8, top - height - 6) : bottom + 6}px`;
};

// After a scroll: what has the focus may have scrolled into sight, and keeps its tooltip.
const moveTooltip = () => {
  if (anchor instanceof Element && anchor.matches(":hover, :focus")) showTooltip(anchor, ...tooltip.childNodes);
  else hideTooltip();
};

// Lines are [name, value, colour or none].
const pairs = (lines) =>
  element(
    "dl",
    {},
    lines.map(([name, value, tint]) => {
      const dot = tint ? element("i", { class: "dot" }) : null;
      if (dot) dot.style.background = tint;
      return element("div", {}, element("dt", {}, dot, name), element("dd", {}, value));
    }),
  );

const atPointer = ({ clientX, clientY }) => ({ left: clientX + 14, top: clientY - 6, bottom: clientY + 10 });

// Attributes of an element that shows something on hover and on focus.
const telling = (content) => {
  const show = ({ currentTarget }) => {
    showTooltip(currentTarget, ...content());
    currentTarget.setAttribute("aria-describedby", "tooltip");
  };
  return { pointerenter: show, focus: show, pointerleave: hideTooltip, blur: hideTooltip };
};

// Words of the glossary explain themselves. A protocol has its word under any version, as standard/6 under standard/N.
const WORDS = new Map(INDEX.glossary.flatMap((word) => word.names.map((name) => [name, word])));
const wordOf = (text) => WORDS.get(text) ?? WORDS.get(text.replace(/\/\d+.*$/, "/N"));

const explains = (text) => {
  const word = wordOf(text);
  return word ? telling(() => [element("strong", {}, word.names.join(", ")), element("p", {}, word.text)]) : {};
};

const term = (text) => element("a", { class: "term", href: link("glossary", wordOf(text).names[0]), ...explains(text) }, text);

// In running text, words of the glossary that are no everyday words become terms, and papers become links.
const escaped = (name) => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/\/N$/, "/\\d+");
const JARGON = [...WORDS.keys()].filter((name) => /[^a-z]/.test(name)).sort((a, b) => b.length - a.length).map(escaped);
const MARKED = new RegExp(`(\`[^\`]+\`|arXiv \\d{4}\\.\\d{5}|(?<!\\w)(?:${JARGON.join("|")})(?![\\w-]))`);

const prose = (text) =>
  text.split(MARKED).map((piece, at) => {
    if (at % 2 === 0) return piece;
    if (piece.startsWith("`")) return element("code", {}, piece.slice(1, -1));
    return piece.startsWith("arXiv") ? element("a", { href: `https://arxiv.org/abs/${piece.slice(6)}` }, piece) : term(piece);
  });

// A row of alternatives, of which one is current.
const facet = (name, options) =>
  options.length < 2
    ? null
    : element(
        "nav",
        { class: "facet", "aria-label": name },
        element("span", { class: "facet-name", "aria-hidden": "true" }, name),
        element(
          "ul",
          {},
          options.map(({ text, href, current }) =>
            element(
              "li",
              {},
              element("a", { href, "aria-current": current ? "true" : null, "data-key": `${name}:${text}`, ...explains(text) }, text),
            ),
          ),
        ),
      );

const flag = (what, text) => element("span", { class: `flag ${what.replaceAll(" ", "-")}` }, text);

const flaggedSeeds = (row) => [
  ["not causal", row.not_causal],
  ["not finite", row.not_finite],
  ["diverged", row.diverged],
  ["not fitted", row.not_fitted],
];

const flags = (row) =>
  flaggedSeeds(row)
    .filter(([, seeds]) => seeds.length)
    .map(([what, seeds]) => flag(what, `${seeds.length} ${what}`));

const number = (cell, seeds, more = {}) => {
  if (cell === null) return element("td", { class: "number missing", ...more }, MISSING);
  return element(
    "td",
    { class: "number", ...more },
    element("span", { class: "mean" }, digits(cell.mean)),
    cell.low === null ? null : [" ", element("span", { class: "interval" }, interval(cell))],
    cell.n < seeds ? [" ", element("span", { class: "interval" }, plural(cell.n, "seed"))] : null,
  );
};

const share = (fitted) =>
  fitted === null
    ? element("td", { class: "number missing" }, MISSING)
    : element(
        "td",
        { class: "number" },
        element("span", { class: "mean" }, (fitted.seeds / fitted.n).toFixed(2)),
        fitted.low === null ? null : [" ", element("span", { class: "interval" }, `${fitted.low.toFixed(2)}–${fitted.high.toFixed(2)}`)],
      );

const difference = (against) => {
  if (against === null) return element("td", { class: "number missing" }, MISSING);
  const ends = against.low === null ? null : [" ", element("span", { class: "interval" }, `${signed(against.low)} to ${signed(against.high)}`)];
  const verdict = against.verdict === null ? null : [" ", element("span", { class: `against ${against.verdict}` }, against.verdict)];
  const failing = against.decided_by.length ? ` ${against.verdict ? "" : "undecided "}by failing seed ${against.decided_by.join(" or ")}` : null;
  return element("td", { class: "number" }, element("span", { class: "mean" }, signed(against.difference), verdict), failing, ends);
};

const level = (value) => element("td", { class: "number" }, value === null ? null : digits(value));

const tierChip = (row) => element("span", { class: row.tier === 1 ? "tier first" : "tier" }, tierOf(row));

// A command, which wraps between its words alone.
const commandLine = (text, before = null) =>
  element("p", { class: "command" }, before, element("code", {}, text.split(" ").map((word, at) => [at ? " " : null, element("span", {}, word)])));

const section = (title, ...children) => element("section", {}, element("h2", {}, title), ...children);

// A table in a box of its own, which scrolls sideways where the table does not fit and can then be reached by keyboard.
const scrolling = (name, table) => {
  const box = element("div", { class: "scroll" }, table);
  const adapt = () => {
    box.classList.remove("fits");
    const fits = table.scrollWidth <= box.clientWidth;
    box.classList.toggle("fits", fits);
    for (const [attribute, value] of [["tabindex", "0"], ["role", "region"], ["aria-label", name]]) {
      if (fits) box.removeAttribute(attribute);
      else box.setAttribute(attribute, value);
    }
  };
  new ResizeObserver(adapt).observe(box);
  return box;
};

// Headers that sort. Rows without a value stay last either way; equal ones keep the order of the board, and `below` stays below.
class SortableTable {
  constructor({ caption, above, below, columns, rows, sorted, changed }) {
    Object.assign(this, { columns, sorted, changed, direction: 1 });
    this.lines = rows.map((row, place) => ({ row, place, line: element("tr", {}, columns.map((column) => column.cell(row))) }));
    this.headers = columns.map((column) => this.header(column));
    this.body = element("tbody", {}, this.lines.map(({ line }) => line));
    this.table = element(
      "table",
      {},
      element("caption", { class: "unseen" }, caption),
      element("thead", {}, above, element("tr", {}, this.headers)),
      this.body,
      below ? element("tfoot", {}, below) : null,
    );
    this.arrange();
  }

  header(column) {
    const content = column.sort
      ? element("button", { type: "button", click: () => this.sortBy(column), ...explains(column.name) }, column.title, element("span", { class: "arrow", "aria-hidden": "true" }))
      : column.title;
    return element("th", { scope: "col", class: column.class }, content);
  }

  sortBy(column) {
    this.direction = this.sorted === column.name ? -this.direction : column.best ?? 1;
    this.sorted = column.name;
    this.arrange();
  }

  arrange() {
    const column = this.columns.find(({ name }) => name === this.sorted);
    const compared = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    const order = ({ row: a, place: first }, { row: b, place: second }) => {
      const [x, y] = [column.sort(a), column.sort(b)];
      if (x === null || y === null) return (x === null) - (y === null) || first - second;
      return this.direction * compared(x, y) || first - second;
    };
    this.lines.sort(order);
    this.body.append(...this.lines.map(({ line }) => line));
    this.columns.forEach(({ name, sort }, at) => {
      if (!sort) return;
      const value = name === this.sorted ? (this.direction > 0 ? "ascending" : "descending") : "none";
      this.headers[at].setAttribute("aria-sort", value);
    });
    this.changed(this);
  }
}

const simpleTable = (caption, header, lines) =>
  scrolling(
    caption,
    element(
      "table",
      {},
      element("caption", { class: "unseen" }, caption),
      element(
        "thead",
        {},
        element("tr", {}, header.map(([text, kind]) => element("th", { scope: "col", class: kind }, typeof text === "string" && wordOf(text) ? term(text) : text))),
      ),
      element("tbody", {}, lines),
    ),
  );
