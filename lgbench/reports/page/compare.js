// Two entries side by side, board by board. The verdict is that of the board.

const verdict = (board, first, second) => {
  const better = betterOf(board, first, second);
  if (better === null) return [plain(first), " and ", plain(second), " are not significantly different."];
  return [strong(better), " is significantly better than ", plain(better === first ? second : first), "."];
};

// The significantly better one of two entries that both have results, or null.
const betterOf = (board, ...pair) =>
  pair.find((entry) => board.rows.find((row) => row.entry === entry)?.better_than.some((other) => pair.includes(other))) ?? null;

const strong = (entry) => element("strong", {}, ...breakable(entry));
const plain = (entry) => element("span", {}, ...breakable(entry));

const compareForm = (first, second, wanted) => {
  const select = (id, label, current) =>
    element(
      "div",
      {},
      element("label", { for: id }, label),
      element("select", { id }, entries.map((entry) => element("option", { value: entry, selected: entry === current }, entry))),
    );
  const submitted = (event) => {
    event.preventDefault();
    const [a, b] = second === null ? [first, form.elements.other.value] : [form.elements.one.value, form.elements.other.value];
    location.hash = link("compare", a, b, wanted.metric, wanted.protocol);
  };
  const other = bestFirst().find((entry) => entry !== first) ?? first;
  const form = element(
    "form",
    { class: "pair", submit: submitted },
    second === null ? null : select("one", "Entry", first),
    select("other", second === null ? "Compare with" : "against", second ?? other),
    element("button", { type: "submit" }, "Compare"),
  );
  return form;
};

// In the order of the overview, or of the first board where there is none; the others follow.
const bestFirst = () => {
  const grid = INDEX.grids.find((other) => protocolOf(other) === INDEX.start.protocol);
  return distinct([...(grid ? grid.rows.map(({ entry }) => entry) : firstBoard().entries), ...entries]);
};

const compareView = async (first, second, metric, protocol) => {
  const best = bestFirst();
  const one = first ?? best[0];
  const pair = [one, second ?? best.find((entry) => entry !== one) ?? one];
  if (!pair.every(known)) return nowhere();
  const own = INDEX.boards.filter((pageBoard) => pair.some((entry) => pageBoard.entries.includes(entry)));
  const metrics = distinct(own.map((pageBoard) => pageBoard.metric));
  const protocols = distinct(own.map((pageBoard) => pageBoard.protocol));
  const shared = own.filter((pageBoard) => pair.every((entry) => pageBoard.entries.includes(entry)));
  const start = shared.find((pageBoard) => pageBoard.protocol === INDEX.start.protocol) ?? shared[0] ?? own[0];
  const wanted = { metric: metric ?? metrics[0], protocol: protocol ?? start.protocol };
  const pageBoards = own.filter((pageBoard) => pageBoard.metric === wanted.metric && pageBoard.protocol === wanted.protocol);
  if (!pageBoards.length) return nowhere();
  await loadBoards(wanted);
  colours.keep(pair);
  return {
    title: `${pair[0]} against ${pair[1]}`,
    page: "compare",
    nodes: [
      heading("Compare"),
      first === undefined
        ? element(
            "p",
            { class: "lead" },
            `Two entries of your choice; at first the first two of the overview under ${INDEX.start.protocol}.`,
          )
        : null,
      compareForm(...pair, wanted),
      element(
        "div",
        { class: "facets" },
        facet("Metric", metrics.map((name) => ({
          text: labelOf(name),
          href: link("compare", ...pair, name, wanted.protocol),
          current: name === wanted.metric,
        }))),
        facet("Protocol", protocols.map((name) => ({
          text: name,
          href: link("compare", ...pair, wanted.metric, name),
          current: name === wanted.protocol,
        }))),
      ),
      ...(pair[0] === pair[1]
        ? [element("p", { class: "empty" }, "An entry cannot be compared with itself; choose two.")]
        : [overview(pageBoards, pair), ...pageBoards.filter((each) => shared.includes(each)).map((each) => comparison(each, pair))]),
    ],
  };
};

const overview = (pageBoards, pair) => {
  const header = [["board", "name"], ["significantly better", null], ...pair.map((entry) => [breakable(entry), "number"])];
  const lines = pageBoards.map((pageBoard) => {
    const board = boardOf(pageBoard);
    const rows = pair.map((entry) => board.rows.find((row) => row.entry === entry));
    const cells = rows.map((row) => (row ? number(cellOf(row, "OOD") ?? cellOf(row, "ID"), row.seeds.length) : number(null, 0)));
    const name = element("a", { href: linkToBoard(pageBoard) }, titleOf(pageBoard));
    const better = betterOf(board, ...pair);
    const none = rows.every(Boolean) ? "neither" : MISSING;
    const said = element("td", { class: "better" }, better === null ? none : plain(better));
    return element("tr", { class: pageBoard.kind }, element("th", { scope: "row", class: "name" }, name), said, cells);
  });
  return section(
    "At a glance",
    element(
      "p",
      { class: "lead" },
      `${boardOf(pageBoards[0]).metric.title}, mean over OOD lengths, ${direction(boardOf(pageBoards[0]).metric)}. ` +
        "An entry is better with p below 0.001, as in the tiers of the board. The commands below test these two entries alone.",
    ),
    simpleTable("Verdicts by board", header, lines),
  );
};

const comparison = (pageBoard, pair) => {
  const board = boardOf(pageBoard);
  const rows = pair.map((entry) => board.rows.find((row) => row.entry === entry));
  const lines = columnsOf(board).map(([title, kind, length]) =>
    element(
      "tr",
      {},
      element("th", { scope: "row", class: "name" }, title),
      rows.map((row) => number(cellOf(row, kind, length), row.seeds.length)),
      board.context_free.length ? level(contextFreeOf(board, kind, length)) : null,
    ),
  );
  const contextFree = board.context_free.length ? [["context-free baseline", "number"]] : [];
  const header = [["length", "name"], ...pair.map((entry) => [breakable(entry), "number"]), ...contextFree];
  return section(
    titleOf(pageBoard),
    element("p", { class: "verdict" }, verdict(board, ...pair)),
    element(
      "div",
      { class: "side" },
      simpleTable(`Both entries on ${titleOf(pageBoard)}`, header, lines),
      element("figure", { class: "curves" }, legend(pair, board.context_free.length), drawCurves(boardCurves(pageBoard, rows))),
    ),
    commandLine(command(pageBoard, pair), "Paired differences: "),
  );
};

const command = (pageBoard, pair) => {
  const several = distinct(INDEX.boards.map(({ protocol }) => protocol)).length > 1;
  const words = ["lgbench", "compare", ...pair, "--task", pageBoard.name, "--metric", pageBoard.metric];
  return [...words, ...(several ? ["--protocol", pageBoard.protocol] : [])].map(quoted).join(" ");
};
