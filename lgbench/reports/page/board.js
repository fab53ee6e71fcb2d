// A task or a family: its rule and sample contexts, and its board with facets to choose it, curves, table and notes.

const MAX_DRAWN = 8;

// The choices of a reader, which stay when another board is shown; null before the first choice.
const chosen = { text: "", weights: new Set(allWeights), drawn: null, atLength: null };

const drawnAtFirst = (board) =>
  new Set([...board.unranked, ...board.rows].filter((row) => weightsOf(row.entry) === "raw").slice(0, MAX_DRAWN).map((row) => row.entry));

const boardFacets = (pageBoard) => {
  const family = INDEX.families.find(({ name, tasks }) => name === pageBoard.name || tasks.includes(pageBoard.name));
  const to = (name) => linkToBoard(nearest(name, pageBoard));
  const families = INDEX.families.map(({ name }) => ({ text: name, href: to(name), current: name === family.name }));
  families.sort((one, other) => (one.text < other.text ? -1 : 1));
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

const taskView = async (name = INDEX.start.name, metric, protocol, version, metricVersion) => {
  const number = (text) => (text === undefined ? undefined : Number(text));
  const asked = Object.entries({ metric, protocol, version: number(version), metric_version: number(metricVersion) });
  const given = asked.filter(([, value]) => value !== undefined);
  const pageBoard = startBoardOf(name, Object.fromEntries(given));
  if (!pageBoard || given.some(([field, value]) => pageBoard[field] !== value)) return nowhere();
  await Promise.all([loadBoards(pageBoard), pageBoard.steps.includes(chosen.atLength) ? loadSteps(pageBoard) : null]);
  const board = boardOf(pageBoard);
  const view = new BoardView(pageBoard);
  return {
    title: `${board.name}, ${board.metric.label}`,
    page: "task",
    nodes: [
      boardFacets(pageBoard),
      heading(board.name),
      ...taskHead(board.name),
      section("Board", element("p", { class: "lead" }, prose(about(pageBoard).join(" · "))), view.figure, view.tools, view.box, notes(board)),
    ],
    shown: () => view.update(),
  };
};

// What a task is: of a family the rule that its tasks share, and each task; of a task its rule, published facts and samples.
const taskHead = (name) => {
  const family = INDEX.families.find((other) => other.name === name && String(other.tasks) !== name);
  return family ? familyHead(family) : described(name) ? taskParts(name) : [];
};

const described = (name) => (Object.hasOwn(INDEX.tasks, name) ? INDEX.tasks[name] : null);

// A sentence on a family: what its only task is, or the rule of the first.
const aboutFamily = ({ tasks }) => {
  const first = described(tasks[0]);
  return first === null ? "" : tasks.length === 1 ? first.about : first.rule[0];
};

const linkToTask = (name) => element("a", { href: link("task", name) }, name);

const familyHead = (family) => [
  element("p", {}, prose(aboutFamily(family))),
  element(
    "dl",
    { class: "tasks" },
    family.tasks.map((name) => {
      const own = described(name);
      const said = own && own.about !== own.rule[0] ? own.about : own?.samples[0]?.context;
      return element("div", {}, element("dt", {}, linkToTask(name)), element("dd", {}, said ?? ""));
    }),
  ),
];

const taskParts = (name) => {
  const { about: first, rule, reads, trained, published, samples } = described(name);
  return [
    element(
      "div",
      { class: "task-parts" },
      element(
        "div",
        {},
        distinct([first, ...rule]).map((text) => element("p", {}, prose(text))),
        element("p", { class: "muted" }, `It ${reads}; ${trained}.`),
        published ? element("p", {}, "Published: ", prose(published), ".") : null,
      ),
      element("div", {}, element("h2", {}, "Examples, with p* after them"), samples.map(sampleContext)),
    ),
  ];
};

const sampleContext = ({ context, answers, left_out }) =>
  element(
    "figure",
    { class: "context" },
    element("code", {}, context),
    element(
      "ul",
      {},
      answers.map(([answer, p]) => {
        const bar = element("i", { class: "bar" });
        bar.style.width = `${5 * p}rem`;
        return element("li", {}, element("code", {}, answer), bar, ` ${p}`);
      }),
      left_out ? element("li", { class: "muted" }, `and ${left_out} more`) : null,
    ),
  );

const notes = (board) =>
  element(
    "div",
    { class: "notes" },
    board.notes.map((note) => element("p", {}, prose(note))),
    element("p", {}, "Small print under a mean is its 95 % interval over seeds. Words: ", words(board.metric.label, "ID", "OOD", "tier", "rank interval", "fitted", "effective length", "context-free baseline"), "."),
    element("p", {}, element("a", { href: "#/rules" }, "How boards are made")),
  );

const words = (...texts) => texts.filter(wordOf).flatMap((text, at) => [at ? ", " : "", term(text)]);

const captionOf = (board, atLength) =>
  (atLength === null
    ? "Mean over seeds and its 95 % interval at each length, of the entries that are ticked below."
    : `Mean over seeds and its 95 % interval at length ${atLength} while models train, of the entries that are ticked below. ` +
      "The last step is the end of the training, which the table shows; eval steps before it are over fewer contexts.") +
  (contextFreeCurve(board).length ? " Dashed: the context-free baseline, the value of the best prediction that ignores the context." : "");

// A column's cell in the row of the context-free baseline: empty where the column has none, and hidden where the column is.
const contextFreeCell = (column) => column.contextFree?.() ?? element("td", { class: column.class });

// The choice of the axis, for boards whose models were tested at eval steps. `changed` is called with a length, or with null for
// curves against length.
const acrossChoice = (pageBoard, current, changed) => {
  if (!pageBoard.steps.length) return null;
  const sideOf = (length) => (!boardOf(pageBoard).train_length ? "" : length <= boardOf(pageBoard).train_length ? " (ID)" : " (OOD)");
  const option = (value, text) => element("option", { value, selected: value === String(current ?? "") }, text);
  const choice = element(
    "select",
    { id: "across", change: (event) => changed(event.target.value === "" ? null : Number(event.target.value)) },
    option("", "length"),
    pageBoard.steps.map((length) => option(String(length), `training steps, at length ${length}${sideOf(length)}`)),
  );
  return element("div", { class: "tools" }, element("label", { for: "across" }, "Draw against"), choice);
};

class BoardView {
  constructor(pageBoard) {
    const board = boardOf(pageBoard);
    this.pageBoard = pageBoard;
    this.board = board;
    this.rows = [...board.rows, ...board.unranked];
    this.ticks = new Map();
    this.drawn = chosen.drawn && this.rows.some((row) => chosen.drawn.has(row.entry)) ? chosen.drawn : drawnAtFirst(board);
    this.key = element("div");
    this.canvas = element("div");
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

  async drawAt(length) {
    if (length !== null) await loadSteps(this.pageBoard);
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
    return this.rows.filter(
      ({ entry }) => chosen.weights.has(weightsOf(entry)) && entry.toLowerCase().includes(wanted),
    );
  }

  // Hide what is filtered out, group what is left, and draw what is ticked of it.
  update() {
    const shown = new Set(this.shown());
    const ticked = this.rows.filter((row) => shown.has(row) && this.drawn.has(row.entry));
    colours.keep(ticked.map((row) => row.entry));
    for (const { row, line } of this.table.lines) {
      line.hidden = !shown.has(row);
      const tick = this.ticks.get(row.entry);
      tick.checked = this.drawn.has(row.entry);
      tick.style.accentColor = ticked.includes(row) ? colours.of(row.entry) : "";
    }
    this.group(this.table);
    const chart = boardCurves(this.pageBoard, ticked, this.atLength);
    const drawn = chart.series.map(({ entry }) => entry);
    this.status.textContent = `${shown.size} of ${this.rows.length} entries shown, ${drawn.length} drawn`;
    this.key.replaceChildren(legend(drawn, chart.contextFree.length));
    this.canvas.replaceChildren(chart.series.length ? drawCurves(chart) : this.nothing(ticked));
  }

  nothing(ticked) {
    const said = ticked.length ? "No ticked entry was measured while it trained." : "Nothing is ticked; tick entries in the table to draw them.";
    return element("p", { class: "empty" }, said);
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
    const lengths = shownLengths(board).map((length) => this.numberColumn(`length ${length}`, String(length), "length", length));
    const columns = [this.tickColumn(), ...this.resultColumns(), ...this.standingColumns(), ...lengths];
    const above = element(
      "tr",
      { class: "above" },
      element("td", { colspan: columns.length - lengths.length }),
      element("th", { scope: "colgroup", colspan: lengths.length }, "at length"),
    );
    return new SortableTable({
      caption: `${board.name}: ${about(this.pageBoard).join(", ")}`,
      above: lengths.length ? above : null,
      below: board.context_free.length ? element("tr", {}, columns.map(contextFreeCell)) : null,
      columns,
      rows: this.rows,
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

  // The result stands beside the entry, where a phone shows it.
  resultColumns() {
    return [
      {
        name: "entry",
        title: "entry",
        class: "name",
        sort: (row) => row.entry,
        cell: (row) => this.nameCell(row.entry),
        contextFree: () => element("th", { scope: "row", class: "name", ...explains("context-free baseline") }, "context-free baseline"),
      },
      this.numberColumn("OOD", "OOD", "OOD", null),
      { name: "picture", title: element("span", { class: "unseen" }, "OOD, drawn"), class: "picture", cell: this.picture() },
      ...this.againstColumn(),
    ];
  }

  nameCell(entry) {
    const protocol = unranked(entry)?.protocol ?? this.pageBoard.protocol;
    const mark = this.board.own?.includes(entry) ? " *" : null;
    return element("th", { scope: "row", class: "name" }, linkTo(entry, this.pageBoard.metric, protocol), mark);
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
        name: "effective length",
        title: "effective length",
        best: -1,
        class: "number",
        sort: (row) => row.effective_length,
        cell: (row) => element("td", { class: "number" }, effectiveLength(this.board, row)),
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
      this.numberColumn("ID", "ID", "ID", null),
    ];
  }

  numberColumn(name, title, kind, length) {
    return {
      name,
      title,
      best: this.board.metric.lower_is_better ? 1 : -1,
      class: "number",
      sort: (row) => cellOf(row, kind, length)?.mean ?? null,
      cell: (row) => number(cellOf(row, kind, length), row.seeds.length),
      contextFree: () => level(contextFreeOf(this.board, kind, length)),
    };
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
    const means = this.rows.map((row) => cellOf(row, "OOD")).filter((cell) => cell !== null);
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
