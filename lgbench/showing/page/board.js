// A board: facets to choose it, its curves, its table, its notes.

const MOST_DRAWN = 8;

// What a reader chose stays when another board is shown; nothing chosen yet is null.
const chosen = { text: "", weights: new Set(allWeights), drawn: null };

const drawnAtFirst = (board) =>
  new Set(board.rows.filter((row) => weightsOf(row.entry) === "raw").slice(0, MOST_DRAWN).map((row) => row.entry));

const boardFacets = (place) => {
  const family = INDEX.families.find(({ name, tasks }) => name === place.name || tasks.includes(place.name));
  const to = (name) => linkToBoard(nearest(name, place));
  const families = INDEX.families.map(({ name }) => ({ text: name, href: to(name), current: name === family.name }));
  const names = distinct([family.name, ...family.tasks]);
  const tasks = names.map((name) => ({
    text: name === family.name ? "all tasks" : name,
    href: to(name),
    current: name === place.name,
  }));
  const own = distinct(boardsWith(place, { name: place.name }).map(({ metric }) => metric));
  const metrics = own.map((metric) => ({
    text: metricOf(metric).short,
    href: linkToBoard(nearest(place.name, { ...place, metric })),
    current: metric === place.metric,
  }));
  const versions = boardsWith(place, { name: place.name, metric: place.metric });
  const several = distinct(versions.map(({ version }) => version)).length > 1;
  const protocols = versions.map((other) => ({
    text: several ? `${other.protocol}, task version ${other.version}` : other.protocol,
    href: linkToBoard(other),
    current: other === place,
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

const boardView = (name, metric, protocol, version) => {
  const wanted = { metric, protocol, version: Number(version) };
  const place = name === undefined ? firstPlace() : nearest(name, wanted);
  if (!place || (metric !== undefined && metric !== place.metric)) return nowhere();
  if (protocol !== undefined && (protocol !== place.protocol || wanted.version !== place.version)) return nowhere();
  const board = boardOf(place);
  const view = new BoardView(board);
  return {
    title: `${board.name}, ${metricOf(board.metric).short}`,
    page: "board",
    nodes: [boardFacets(place), heading(board.name), lead(board), view.figure, view.tools, view.box, notes(place)],
    shown: () => view.update(),
  };
};

const lead = (board) => element("p", { class: "lead" }, about(board).join(" · "));

const notes = (place) =>
  element(
    "div",
    { class: "notes" },
    INDEX.notes[place.id].map((note) => element("p", {}, note)),
    element(
      "p",
      {},
      "Small print under a mean is its 95 % interval over seeds. Entries that cannot be separated share a tier; places are the " +
        "best and the worst that cannot be ruled out; “holds to” is the effective length in training lengths. ",
      element("a", { href: "#/rules" }, "How boards are made"),
      ".",
    ),
  );

class BoardView {
  constructor(board) {
    this.board = board;
    this.ticks = new Map();
    this.drawn = chosen.drawn && board.rows.some((row) => chosen.drawn.has(row.entry)) ? chosen.drawn : drawnAtFirst(board);
    this.key = element("div");
    this.canvas = element("div", { class: "canvas" });
    this.figure = element(
      "figure",
      { class: "curves" },
      this.key,
      this.canvas,
      element("figcaption", {}, "Mean over seeds and its 95 % interval at each length, of the entries that are ticked below."),
    );
    this.status = element("p", { class: "status", role: "status" });
    this.table = this.makeTable();
    this.box = scrolling(`Table: ${board.name}, ${metricOf(board.metric).long}`, this.table.table);
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
    this.key.replaceChildren(legend(ticked.map((row) => row.entry)));
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => drawCurves(this.canvas, this.board, ticked), 0);
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
      element("td", { colspan: 4 }),
      element("th", { scope: "colgroup", colspan: 2 }, "mean over lengths"),
      element("td", { class: "picture" }),
      element("td", {}),
      element("th", { scope: "colgroup", colspan: shownLengths(board).length }, "at length"),
    );
    return new SortableTable({
      caption: `${board.name}: ${about(board).join(", ")}`,
      above: shownLengths(board).length ? above : null,
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
    const place = (row) => this.board.rows.indexOf(row);
    return [
      {
        name: "tier",
        title: "tier",
        sort: (row) => (row.tier === null ? null : place(row)),
        cell: (row) => element("td", { class: "standing" }, tierChip(row)),
      },
      {
        name: "places",
        title: "places",
        sort: (row) => (row.places === null ? null : row.places[0] * 1e6 + row.places[1]),
        cell: (row) => element("td", { class: "standing" }, placesOf(row)),
      },
      {
        name: "entry",
        title: "entry",
        class: "name",
        sort: (row) => row.entry,
        cell: (row) => element("th", { scope: "row", class: "name" }, linkTo(row.entry, this.board.metric, this.board.protocol)),
      },
      {
        name: "seeds",
        title: "seeds",
        best: -1,
        sort: (row) => row.seeds.length,
        cell: (row) => element("td", { class: "seeds" }, String(row.seeds.length), flags(row).flatMap((flag) => [" ", flag])),
      },
    ];
  }

  numberColumns() {
    const best = lowerIsBetter(this.board.metric) ? 1 : -1;
    const column = (name, title, kind, length) => ({
      name,
      title,
      best,
      class: "number",
      sort: (row) => cellOf(row, kind, length)?.mean ?? null,
      cell: (row) => number(cellOf(row, kind, length), row.seeds.length),
    });
    return [
      column("in range", "in range", "in range", null),
      column("beyond", "beyond", "score", null),
      { name: "picture", title: element("span", { class: "unseen" }, "beyond, drawn"), class: "picture", cell: this.picture() },
      {
        name: "holds to",
        title: "holds to",
        best: -1,
        class: "number",
        sort: (row) => row.effective_length,
        cell: (row) => element("td", { class: "number" }, holdsTo(this.board, row)),
      },
      ...shownLengths(this.board).map((length) => column(`length ${length}`, String(length), "length", length)),
    ];
  }

  // The interval beyond the training range, on one scale for all rows.
  picture() {
    const scores = this.board.rows.map((row) => cellOf(row, "score")).filter((cell) => cell !== null);
    const ends = scores.flatMap(({ mean, low, high }) => [low ?? mean, high ?? mean]);
    const x = ends.length ? scaled(ends, 4, 92) : null;
    return (row) => {
      const cell = cellOf(row, "score");
      if (cell === null) return element("td", { class: "picture" });
      const line = cell.low === null ? null : drawn("path", { d: `M${x.at(cell.low)} 8H${x.at(cell.high)}` });
      const dot = drawn("circle", { cx: x.at(cell.mean), cy: 8, r: 3 });
      return element("td", { class: "picture" }, drawn("svg", { viewBox: "0 0 96 16", "aria-hidden": "true" }, line, dot));
    };
  }
}
