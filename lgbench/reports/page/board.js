// A board: facets to choose it, its curves, its table, its notes.

const MAX_DRAWN = 8;

// The choices of a reader, which stay when another board is shown; null before the first choice.
const chosen = { text: "", weights: new Set(allWeights), drawn: null, atLength: null };

const drawnAtFirst = (board) =>
  new Set(board.rows.filter((row) => weightsOf(row.entry) === "raw").slice(0, MAX_DRAWN).map((row) => row.entry));

const boardFacets = (pageBoard) => {
  const family = INDEX.families.find(({ name, tasks }) => name === pageBoard.name || tasks.includes(pageBoard.name));
  const to = (name) => linkToBoard(nearest(name, pageBoard));
  const families = INDEX.families.map(({ name }) => ({ text: name, href: to(name), current: name === family.name }));
  const names = distinct([family.name, ...family.tasks]);
  const tasks = names.map((name) => ({
    text: name === family.name ? "all tasks" : name,
    href: to(name),
    current: name === pageBoard.name,
  }));
  const own = distinct(INDEX.boards.filter((other) => other.name === pageBoard.name).map(({ metric }) => metric));
  const metrics = own.map((metric) => ({
    text: labelOf(metric),
    href: linkToBoard(nearest(pageBoard.name, { ...pageBoard, metric })),
    current: metric === pageBoard.metric,
  }));
  const alike = INDEX.boards.filter((other) => other.name === pageBoard.name && other.metric === pageBoard.metric);
  const protocols = alike.map((other) => ({
    text: [other.protocol, ...versionsOf(other, alike)].join(", "),
    href: linkToBoard(other),
    current: other === pageBoard,
  }));
  return element(
    "div",
    { class: "facets" },
    facet("Family", families),
    facet("Task", tasks),
    facet("Metric", metrics),
    facet("Protocol", protocols),
  );
};

const boardView = (name, metric, protocol, version, metricVersion) => {
  const wanted = { metric, protocol, version: Number(version), metric_version: Number(metricVersion) };
  const pageBoard = name === undefined ? firstBoard() : nearest(name, wanted);
  if (!pageBoard || (metric !== undefined && metric !== pageBoard.metric)) return nowhere();
  if (protocol !== undefined && (protocol !== pageBoard.protocol || wanted.version !== pageBoard.version)) return nowhere();
  if (metricVersion !== undefined && wanted.metric_version !== pageBoard.metric_version) return nowhere();
  const board = boardOf(pageBoard);
  const view = new BoardView(pageBoard);
  return {
    title: `${board.name}, ${board.metric.label}`,
    page: "board",
    nodes: [boardFacets(pageBoard), heading(board.name), lead(pageBoard), view.figure, view.tools, view.box, notes(pageBoard)],
    shown: () => view.update(),
  };
};

const lead = (pageBoard) => element("p", { class: "lead" }, about(pageBoard).join(" · "));

const notes = (pageBoard) =>
  element(
    "div",
    { class: "notes" },
    INDEX.notes[pageBoard.id].map((note) => element("p", {}, note)),
    element(
      "p",
      {},
      "Small print under a mean is its 95 % interval over seeds. ID and OOD are means over the lengths up to the training length " +
        "and over those above it. No entry of a tier is significantly better than another of it. Fitted is the share of seeds " +
        "that have fitted every task. The rank interval holds the best and the worst rank that an entry may have. " +
        "The effective length is in training lengths. ",
      element("a", { href: "#/rules" }, "How boards are made"),
      ".",
    ),
  );

const captionOf = (board, atLength) =>
  (atLength === null
    ? "Mean over seeds and its 95 % interval at each length, of the entries that are ticked below."
    : `Mean over seeds and its 95 % interval at length ${atLength} while models train, of the entries that are ticked below. ` +
      "The last step is the end of the training, which the table shows; points before it are over fewer contexts.") +
  (chanceCurve(board).length ? " Dashed: the chance level, the value of the best prediction that ignores the context." : "");

// A column's cell in the row of the chance level: empty where the column has none, and hidden where the column is.
const chanceCell = (column) => column.chance?.() ?? element("td", { class: column.class });

class BoardView {
  constructor(pageBoard) {
    const board = boardOf(pageBoard);
    this.pageBoard = pageBoard;
    this.board = board;
    this.ticks = new Map();
    this.drawn = chosen.drawn && board.rows.some((row) => chosen.drawn.has(row.entry)) ? chosen.drawn : drawnAtFirst(board);
    this.key = element("div");
    this.canvas = element("div", { class: "canvas" });
    this.atLength = pageBoard.steps.includes(chosen.atLength) ? chosen.atLength : null;
    this.caption = element("figcaption", {}, captionOf(board, this.atLength));
    this.figure = element(
      "figure",
      { class: "curves" },
      acrossChoice(pageBoard, this.atLength, (length) => this.drawAt(length)),
      this.key,
      this.canvas,
      this.caption,
    );
    this.status = element("p", { class: "status", role: "status" });
    this.table = this.makeTable();
    this.box = scrolling(`Table: ${board.name}, ${board.metric.title}`, this.table.table);
    this.tools = this.makeTools();
  }

  makeTools() {
    const text = element("input", {
      type: "search",
      id: "filter",
      value: chosen.text,
      autocomplete: "off",
      spellcheck: "false",
      input: (event) => {
        chosen.text = event.target.value;
        this.update();
      },
    });
    return element(
      "div",
      { class: "tools" },
      element("label", { for: "filter" }, "Filter entries"),
      text,
      element("fieldset", {}, element("legend", { class: "unseen" }, "Weights"), allWeights.map((name) => this.toggle(name))),
      element("button", { type: "button", click: () => this.draw(this.shown()) }, "Draw all shown"),
      element("button", { type: "button", click: () => this.draw([]) }, "Draw none"),
      this.status,
    );
  }

  toggle(name) {
    const changed = (event) => {
      if (event.target.checked) chosen.weights.add(name);
      else chosen.weights.delete(name);
      this.update();
    };
    return element("label", {}, element("input", { type: "checkbox", checked: chosen.weights.has(name), change: changed }), name);
  }

  drawAt(length) {
    this.atLength = chosen.atLength = length;
    this.caption.textContent = captionOf(this.board, length);
    this.update();
  }

  draw(rows) {
    this.drawn = chosen.drawn = new Set(rows.map((row) => row.entry));
    this.update();
  }

  shown() {
    const wanted = chosen.text.trim().toLowerCase();
    return this.board.rows.filter(
      ({ entry }) => chosen.weights.has(weightsOf(entry)) && entry.toLowerCase().includes(wanted),
    );
  }

  // Hide what is filtered out, group what is left, and draw what is ticked of it.
  update() {
    const shown = new Set(this.shown());
    const ticked = this.board.rows.filter((row) => shown.has(row) && this.drawn.has(row.entry));
    colours.keep(ticked.map((row) => row.entry));
    for (const { row, line } of this.table.lines) {
      line.hidden = !shown.has(row);
      const tick = this.ticks.get(row.entry);
      tick.checked = this.drawn.has(row.entry);
      tick.style.accentColor = ticked.includes(row) ? colours.of(row.entry) : "";
    }
    this.group(this.table);
    this.status.textContent = `${shown.size} of ${this.board.rows.length} entries shown, ${ticked.length} drawn`;
    this.key.replaceChildren(legend(this.board, ticked.map((row) => row.entry)));
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => drawCurves(this.canvas, this.pageBoard, ticked, this.atLength), 0);
  }

  // Tiers are bands only where the table is in their order.
  group(table) {
    const ordered = table.sorted === "tier";
    let before = null;
    for (const { row, line } of table.lines) {
      line.classList.toggle("even", ordered && row.tier !== null && row.tier % 2 === 0);
      if (line.hidden) continue;
      line.classList.toggle("starts", ordered && before !== null && before !== row.tier);
      before = row.tier;
    }
  }

  makeTable() {
    const { board } = this;
    const columns = [this.tickColumn(), ...this.standingColumns(), ...this.numberColumns()];
    const above = element(
      "tr",
      { class: "above" },
      element("td", { class: "tick" }),
      element("td", { colspan: 5 }),
      element("th", { scope: "colgroup", colspan: 2 }, "mean over lengths"),
      compared(board) ? element("td", {}) : null,
      element("td", { class: "picture" }),
      element("td", {}),
      element("th", { scope: "colgroup", colspan: shownLengths(board).length }, "at length"),
    );
    return new SortableTable({
      caption: `${board.name}: ${about(this.pageBoard).join(", ")}`,
      above: shownLengths(board).length ? above : null,
      below: board.chance.length ? element("tr", {}, columns.map(chanceCell)) : null,
      columns,
      rows: board.rows,
      sorted: "tier",
      changed: (table) => this.group(table),
    });
  }

  tickColumn() {
    const cell = ({ entry }) => {
      const changed = (event) => {
        if (event.target.checked) this.drawn.add(entry);
        else this.drawn.delete(entry);
        chosen.drawn = this.drawn;
        this.update();
      };
      const tick = element("input", { type: "checkbox", "aria-label": `draw ${entry}`, change: changed });
      this.ticks.set(entry, tick);
      return element("td", { class: "tick" }, tick);
    };
    return { name: "tick", title: element("span", { class: "unseen" }, "drawn"), class: "tick", cell };
  }

  standingColumns() {
    const rank = (row) => this.board.rows.indexOf(row);
    return [
      {
        name: "tier",
        title: "tier",
        sort: (row) => (row.tier === null ? null : row.tier * 1e6 + rank(row)),
        cell: (row) => element("td", { class: "standing" }, tierChip(row)),
      },
      {
        name: "rank interval",
        title: "rank interval",
        sort: (row) => (row.rank_interval === null ? null : row.rank_interval[0] * 1e6 + row.rank_interval[1]),
        cell: (row) => element("td", { class: "standing" }, rankInterval(row)),
      },
      {
        name: "entry",
        title: "entry",
        class: "name",
        sort: (row) => row.entry,
        cell: (row) => element("th", { scope: "row", class: "name" }, linkTo(row.entry, this.pageBoard.metric, this.pageBoard.protocol)),
        chance: () => element("th", { scope: "row", class: "name" }, "chance"),
      },
      {
        name: "seeds",
        title: "seeds",
        best: -1,
        sort: (row) => row.seeds.length,
        cell: (row) => element("td", { class: "seeds" }, String(row.seeds.length), flags(row).flatMap((flag) => [" ", flag])),
      },
      {
        name: "fitted",
        title: "fitted",
        best: -1,
        class: "number",
        sort: (row) => (row.fitted === null ? null : row.fitted.seeds / row.fitted.n),
        cell: (row) => share(row.fitted),
      },
    ];
  }

  numberColumns() {
    const best = this.board.metric.lower_is_better ? 1 : -1;
    const column = (name, title, kind, length) => ({
      name,
      title,
      best,
      class: "number",
      sort: (row) => cellOf(row, kind, length)?.mean ?? null,
      cell: (row) => number(cellOf(row, kind, length), row.seeds.length),
      chance: () => level(chanceOf(this.board, kind, length)),
    });
    return [
      column("ID", "ID", "ID", null),
      column("OOD", "OOD", "OOD", null),
      ...this.againstColumn(),
      { name: "picture", title: element("span", { class: "unseen" }, "OOD, drawn"), class: "picture", cell: this.picture() },
      {
        name: "effective length",
        title: "effective length",
        best: -1,
        class: "number",
        sort: (row) => row.effective_length,
        cell: (row) => element("td", { class: "number" }, effectiveLength(this.board, row)),
      },
      ...shownLengths(this.board).map((length) => column(`length ${length}`, String(length), "length", length)),
    ];
  }

  // The difference to the baseline, on boards where any entry is compared with it.
  againstColumn() {
    if (!compared(this.board)) return [];
    return [
      {
        name: "against baseline",
        title: "against baseline",
        best: this.board.metric.lower_is_better ? 1 : -1,
        class: "number",
        sort: (row) => row.against?.difference ?? null,
        cell: (row) => (row.entry === this.board.baseline ? element("td", { class: "number" }, "baseline") : difference(row.against)),
      },
    ];
  }

  // The interval of the OOD mean, on one scale for all rows.
  picture() {
    const means = this.board.rows.map((row) => cellOf(row, "OOD")).filter((cell) => cell !== null);
    const ends = means.flatMap(({ mean, low, high }) => [low ?? mean, high ?? mean]);
    const x = ends.length ? scaled(ends, 4, 92) : null;
    return (row) => {
      const cell = cellOf(row, "OOD");
      if (cell === null) return element("td", { class: "picture" });
      const line = cell.low === null ? null : drawn("path", { d: `M${x.at(cell.low)} 8H${x.at(cell.high)}` });
      const dot = drawn("circle", { cx: x.at(cell.mean), cy: 8, r: 3 });
      return element("td", { class: "picture" }, drawn("svg", { viewBox: "0 0 96 16", "aria-hidden": "true" }, line, dot));
    };
  }
}
