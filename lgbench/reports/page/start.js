// The first page: what lgbench is, who is good at what, the tasks, how to add a model, curves of each family, and claims.

const MAX_FIRST_ROWS = 12;
const MAX_FIRST_DRAWN = 6;
const MAX_FIRST_FAMILIES = 6;

const startView = async (protocol = INDEX.start.protocol) => {
  const grid = INDEX.grids.find((other) => protocolOf(other) === protocol);
  if (!grid && protocol !== INDEX.start.protocol) return nowhere();
  const boards = familyBoards(protocol).slice(0, MAX_FIRST_FAMILIES);
  await Promise.all(boards.map((pageBoard) => loadBoards(pageBoard)));
  const names = drawnOnStart(grid, boards);
  colours.keep(names);
  return {
    title: "overview",
    page: "grid",
    nodes: [
      element(
        "h1",
        { tabindex: -1 },
        "lgbench trains sequence models on short inputs, tests them on longer ones, and measures how much of the exact answer survives.",
      ),
      ownEntries(protocol),
      element("div", { class: "first" }, grid ? gridSection(grid) : null, element("div", {}, tasksSection(), addSection())),
      picturesOfFamilies(boards, names, protocol),
      INDEX.claims.length ? claimsAtAGlance(protocol) : null,
    ],
  };
};

// A family without runs under the protocol is drawn under another, and its caption says so.
const familyBoards = (protocol) => {
  const families = INDEX.families.map(({ name }) => startBoardOf(name, { protocol })).filter((pageBoard) => pageBoard !== null);
  const measured = families.filter(({ metric }) => metric === INDEX.start.metric);
  const first = measured.filter((pageBoard) => pageBoard.protocol === protocol);
  return measured.length ? [...first, ...measured.filter((other) => !first.includes(other))] : [firstBoard()];
};

// Links to the boards with own entries beside published ones: those of whole families, else those of tasks.
const ownEntries = (protocol) => {
  const links = INDEX.families.flatMap(({ name, tasks }) => {
    const boards = distinct([name, ...tasks]).map((each) => startBoardOf(each, { protocol }));
    const [family, ...others] = boards.filter((pageBoard) => pageBoard?.own.length);
    return family?.name === name ? [family] : [family, ...others].filter(Boolean);
  });
  const raw = ({ own }) => own.filter((entry) => weightsOf(entry) === "raw").join(", ");
  const named = links.map((pageBoard) => element("a", { href: linkToBoard(pageBoard) }, `${raw(pageBoard)} on ${pageBoard.name}`));
  return named.length ? element("p", {}, "Your entries: ", named.flatMap((each, at) => [at ? "; " : "", each])) : null;
};

// The first entries of the grid, among them the baseline, and the best of a family that has none of them.
const drawnOnStart = (grid, boards) => {
  const { rows, baseline } = boardOf(boards[0]);
  const own = boards.map((pageBoard) => boardOf(pageBoard).rows.map(({ entry }) => entry).filter((entry) => weightsOf(entry) === "raw"));
  const names = (grid ?? { rows }).rows.map(({ entry }) => entry).filter((entry) => own.flat().includes(entry));
  const first = names.slice(0, MAX_FIRST_DRAWN);
  const drawn = names.includes(baseline) && !first.includes(baseline) ? [...first.slice(0, -1), baseline] : first;
  return distinct([...drawn, ...own.filter((entries) => !entries.some((entry) => drawn.includes(entry))).flatMap(([best]) => best ?? [])]);
};

const gridSection = (grid) => {
  const lines = grid.rows.map((row, at) => {
    const late = at >= MAX_FIRST_ROWS && !row.cells.some((cell) => cell?.best);
    return element("tr", { hidden: late }, gridHead(row, grid), row.cells.map((cell, column) => gridCell(grid, row, cell, column)));
  });
  const table = element(
    "table",
    { class: "grid" },
    element("caption", { class: "unseen" }, `Entries by task families, protocol ${protocolOf(grid)}`),
    element("thead", {}, gridGroups(grid), element("tr", {}, element("th", { scope: "col", class: "name" }, "entry"), grid.columns.map(columnHead))),
    element("tbody", {}, lines),
  );
  const protocols = INDEX.grids.map(protocolOf).map((name) => ({ text: name, href: link("grid", name), current: name === protocolOf(grid) }));
  return section(
    "Who stays right beyond the training length",
    scaleOf(grid.metric),
    scrolling("Table: entries by families", table),
    element("div", { class: "tools" }, moreRows(lines), facet("Protocol", protocols)),
  );
};

const scaleOf = ({ label }) =>
  element(
    "p",
    { class: "scale" },
    prose(`Error on longer inputs, OOD ${label}, in percent of the context-free baseline: `),
    [["0", 0, " exact"], ["50", 0.5, ""], ["100", 1, " as bad as ignoring the input"], ["120", 1.2, " worse"]].flatMap(
      ([text, share, said]) => [element("span", {}, shaded(element("span", { class: "cell" }, text), share), said), " "],
    ),
    element("span", {}, "★ best"),
  );

// A button that shows the rows that are hidden at first, and hides them again.
const moreRows = (lines) => {
  const late = lines.filter((line) => line.hidden);
  const all = `All ${lines.length} entries`;
  const toggle = ({ currentTarget }) => {
    for (const line of late) line.hidden = !line.hidden;
    const shown = !late[0].hidden;
    currentTarget.setAttribute("aria-expanded", String(shown));
    currentTarget.textContent = shown ? "The first entries" : all;
  };
  return late.length ? element("button", { type: "button", "aria-expanded": "false", click: toggle }, all) : null;
};

// The nearer to a perfect answer, the stronger the colour; grey is worse than the baseline.
const shaded = (node, value) => {
  if (value === null) return node;
  if (value > 1) node.classList.add("worse");
  else node.style.setProperty("--left", `${(100 * (1 - Math.max(0, value))).toFixed(0)}%`);
  return node;
};

const gridGroups = ({ columns }) => {
  const families = columns.filter(({ kind }) => kind === "family").length;
  if (families === columns.length) return null;
  const group = (text, colspan) => element("th", { scope: "colgroup", colspan }, text);
  return element("tr", { class: "above" }, element("td", {}), group("families of tasks", families), group("classes of tasks", columns.length - families));
};

const columnHead = ({ kind, name, tasks }) => {
  if (kind === "class") {
    const told = telling(() => [element("p", {}, `Mean over ${tasks.join(", ")}`)]);
    return element("th", { scope: "col", class: "class" }, element("button", { type: "button", ...told }, element("span", {}, name)));
  }
  const family = INDEX.families.find((other) => other.name === name);
  const told = telling(() => [element("strong", {}, family.tasks.join(", ")), element("p", {}, aboutFamily(family))]);
  return element("th", { scope: "col" }, element("a", { href: link("task", name), ...told }, element("span", {}, ...breakable(name))));
};

const gridHead = ({ entry }, grid) =>
  element(
    "th",
    { scope: "row", class: "name" },
    shortLink(entry, grid.metric.name, protocolOf(grid)),
  );

const shortLink = (entry, ...rest) =>
  element("a", { href: linkToEntry(entry, ...rest), class: "entry" }, ...breakable(INDEX.entries[entry].short));

const gridCell = ({ metric, columns }, { entry }, cell, at) => {
  if (cell === null) return element("td", { class: "cell missing" }, MISSING);
  const { name, context_free: contextFree } = columns[at];
  const lines = [["entry", entry], ["tasks", name], [`OOD ${metric.label}`, digits(cell.mean)]];
  if (contextFree !== null) lines.push(["context-free baseline", digits(contextFree)]);
  const standing = cell.best ? "the best" : cell.may_be_best ? "not significantly worse than the best" : null;
  if (standing) lines.push(["", standing]);
  const tell = (event) => showTooltip(event.currentTarget, pairs(lines));
  const star = cell.best ? [element("span", { "aria-hidden": "true" }, "★"), element("span", { class: "unseen" }, "best ")] : null;
  const text = cell.share === null ? digits(cell.mean) : percent(cell.share);
  const found = element("td", { class: cell.best ? "cell best" : "cell", pointerenter: tell, pointerleave: hideTooltip }, star, text);
  return shaded(found, cell.share);
};

const tasksSection = () =>
  section(
    "The tasks",
    element(
      "dl",
      { class: "tasks" },
      INDEX.families
        .slice(0, MAX_FIRST_FAMILIES)
        .map((family) => element("div", {}, element("dt", {}, linkToTask(family.name)), element("dd", {}, aboutFamily(family)))),
    ),
    allFamilies(),
  );

const allFamilies = () =>
  INDEX.families.length > MAX_FIRST_FAMILIES
    ? element("p", {}, element("a", { href: link("task") }, `All ${INDEX.families.length} families of tasks`))
    : null;

const docsLink = (path, text) => (INDEX.docs === null ? null : element("a", { href: `${INDEX.docs.replace(/\/$/, "")}/${path}` }, text));

const addSection = () => {
  const guides = [docsLink("how-to/use-any-model.html", "Use any model"), docsLink("how-to/submit-and-verify.html", "Submit results")].filter(Boolean);
  return section(
    "Add your model",
    element("p", {}, "Name a Python function that builds it; lgbench trains it as all others, and puts it on the board."),
    commandLine(`lgbench run --task ${quoted(INDEX.start.name)} --arch ./my_model.py:build --protocol standard --seeds 0:5`),
    commandLine(`lgbench leaderboard --task ${quoted(INDEX.start.name)} --with published`),
    guides.length ? element("p", {}, guides.flatMap((guide, at) => [at ? " · " : "", guide])) : null,
  );
};

const picturesOfFamilies = (boards, names, protocol) => {
  const pictures = boards.flatMap((pageBoard) => {
    const rows = boardOf(pageBoard).rows.filter(({ entry }) => names.includes(entry));
    if (!rows.length) return [];
    const under = pageBoard.protocol === protocol ? "" : `, protocol ${pageBoard.protocol}`;
    const caption = element("figcaption", {}, element("a", { href: linkToBoard(pageBoard) }, titleOf(pageBoard) + under));
    return [element("figure", { class: "curves" }, caption, drawCurves(boardCurves(pageBoard, rows)))];
  });
  return section("As inputs get longer", legend(names, contextFreeCurve(boardOf(boards[0])).length, (entry) => shortLink(entry)), element("div", { class: "pictures" }, pictures));
};

// Under the protocol of the page, or of a claim without runs there, under its first.
const claimsAtAGlance = (protocol) =>
  section(
    "Which published claims hold",
    element("p", {}, "Of each claim, the number of tests with each verdict: a test is of one task or family, and of one pair of entries."),
    claimList((claim) => {
      const own = protocolsOf(decidedOf(claim));
      return own.includes(protocol) ? [protocol] : own.slice(0, 1);
    }),
  );
