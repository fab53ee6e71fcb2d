// All families together: a table of the entries that ran every family, and their performance profiles.

const overallView = (metric, protocol) => {
  const found = INDEX.overall;
  const board =
    metric === undefined
      ? found.find((other) => other.metric.name === INDEX.start.metric && protocolOf(other) === INDEX.start.protocol) ?? found[0]
      : found.find((other) => other.metric.name === metric && (protocol === undefined || protocolOf(other) === protocol));
  if (!board) return nowhere();
  const drawnEntries = board.rows.filter(({ entry }) => weightsOf(entry) === "raw").slice(0, MAX_DRAWN);
  colours.keep(drawnEntries.map(({ entry }) => entry));
  return {
    title: `overall, ${board.metric.label}`,
    page: "overall",
    nodes: [
      overallFacets(board, found),
      heading("All families"),
      element(
        "p",
        { class: "lead" },
        prose(
          `OOD ${board.metric.label} as a share of the context-free baseline: 0 is perfect, 1 is as bad as that · ` +
            `${board.families.join(", ")} · protocol ${protocolOf(board)}`,
        ),
      ),
      scrolling("Table: all families", overallTable(board).table),
      overallNotes(board),
      section("Performance profiles", ...profiles(board, drawnEntries)),
    ],
  };
};

const linkToOverall = (board) => link("overall", board.metric.name, protocolOf(board));

const overallFacets = (board, found) => {
  const same = (field) => found.filter((other) => field(other) === field(board));
  const metricOf = ({ metric }) => metric.name;
  const option = (text) => (other) => ({ text: text(other), href: linkToOverall(other), current: other === board });
  return element(
    "div",
    { class: "facets" },
    facet("Metric", same(protocolOf).map(option(({ metric }) => metric.label))),
    facet("Protocol", same(metricOf).map(option(protocolOf))),
  );
};

const estimate = (value, size) =>
  value === null
    ? element("td", { class: "number missing" }, MISSING)
    : element(
        "td",
        { class: "number" },
        element("span", { class: "mean" }, value.value.toFixed(size)),
        value.low === null ? null : [" ", element("span", { class: "interval" }, `${value.low.toFixed(size)}–${value.high.toFixed(size)}`)],
      );

const overallTable = (board) => {
  const compared = board.rows.some(({ improvement }) => improvement !== null);
  const improvement = (row) =>
    row.entry === board.baseline ? element("td", { class: "number" }, "baseline") : estimate(row.improvement, 2);
  const columns = [
    {
      name: "entry",
      title: "entry",
      class: "name",
      sort: (row) => row.entry,
      cell: (row) => element("th", { scope: "row", class: "name" }, linkTo(row.entry, board.metric.name, protocolOf(board))),
    },
    { name: "IQM", title: "IQM", class: "number", sort: (row) => row.score.value, cell: (row) => estimate(row.score, 4) },
    { name: "mean", title: "mean", class: "number", sort: (row) => row.mean.value, cell: (row) => estimate(row.mean, 4) },
    {
      name: "rank without a family",
      title: "rank without a family",
      sort: (row) => Math.max(...row.ranks_without),
      cell: (row) => element("td", {}, distinct([Math.min(...row.ranks_without), Math.max(...row.ranks_without)]).join("–")),
    },
    compared
      ? {
          name: "P(better)",
          title: "P(better)",
          class: "number",
          best: -1,
          sort: (row) => row.improvement?.value ?? null,
          cell: improvement,
        }
      : null,
    {
      name: "seeds",
      title: "seeds",
      sort: (row) => Math.min(...row.seeds),
      best: -1,
      cell: (row) => element("td", { class: "seeds" }, distinct([Math.min(...row.seeds), Math.max(...row.seeds)]).join("–")),
    },
    ...board.families.map((family, at) => ({
      name: family,
      title: breakable(family),
      class: "number",
      sort: (row) => row.families[at],
      cell: (row) => element("td", { class: "number" }, digits(row.families[at])),
    })),
  ].filter((column) => column !== null);
  return new SortableTable({ caption: "All families", above: null, below: null, columns, rows: board.rows, sorted: "IQM", changed: () => {} });
};

const overallNotes = (board) =>
  element(
    "div",
    { class: "notes" },
    board.notes.map((note) => element("p", {}, prose(note))),
    element("p", {}, "Under a family stands the mean over its seeds. Small print is a 95 % interval of the stratified bootstrap."),
    element("p", {}, element("a", { href: "#/rules" }, "How boards are made")),
  );

// The share of runs at or below each score: a higher curve is better.
const profiles = (board, rows) => [
  legend(rows.map(({ entry }) => entry)),
  element(
    "figure",
    { class: "curves" },
    drawCurves({
      metric: { label: "share of runs", title: "share of runs", low: 0, high: 1, lower_is_better: false, threshold: null, landmark: null },
      label: `Share of runs against the largest score: ${rows.map(({ entry }) => entry).join(", ")}.`,
      axis: { name: "score at most", ticks: [0, 0.25, 0.5, 0.75, 1, 1.25], said: String, logarithmic: false, trained: 0 },
      series: rows.map(({ entry, profile }) => ({
        entry,
        points: profile.map((mean, at) => ({ at: board.limits[at], mean, low: null, high: null, contextFree: null })),
      })),
      contextFree: [],
    }),
    element("figcaption", {}, "The share of runs, all families alike, with at most this score. The best entries with raw weights."),
  ),
];
