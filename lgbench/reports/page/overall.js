// All families together: a table of the entries that ran every family, and their performance profiles.

const overallOf = remembered(() => read("overall"));
const overalls = () => overallOf("all");

const PROFILE = { width: 640, height: 260, left: 44, right: 12, top: 10, bottom: 36 };

const overallView = (metric, protocol) => {
  const found = overalls();
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
        `OOD ${board.metric.label} as a share of chance: 0 is perfect, 1 is as bad as chance · ` +
          `${board.families.join(", ")} · protocol ${protocolOf(board)}`,
      ),
      scrolling("Table: all families", overallTable(board).table),
      overallNotes(board),
      section("Performance profiles", ...profiles(board, drawnEntries)),
    ],
  };
};

const protocolOf = ({ protocol }) =>
  [`${protocol.name}/${protocol.version}`, ...protocol.changes.map(([key, value]) => `${key}=${value}`)].join(" ");

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
    {
      name: "seeds",
      title: "seeds",
      sort: (row) => Math.min(...row.seeds),
      best: -1,
      cell: (row) => element("td", { class: "seeds" }, distinct([Math.min(...row.seeds), Math.max(...row.seeds)]).join("–")),
    },
    { name: "IQM", title: "IQM", class: "number", sort: (row) => row.score.value, cell: (row) => estimate(row.score, 4) },
    { name: "mean", title: "mean", class: "number", sort: (row) => row.mean.value, cell: (row) => estimate(row.mean, 4) },
    {
      name: "rank less a family",
      title: "rank less a family",
      sort: (row) => Math.max(...row.ranks_without),
      cell: (row) => element("td", {}, distinct([Math.min(...row.ranks_without), Math.max(...row.ranks_without)]).join("–")),
    },
    compared
      ? {
          name: "improvement",
          title: "P(better)",
          class: "number",
          best: -1,
          sort: (row) => row.improvement?.value ?? null,
          cell: improvement,
        }
      : null,
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
    INDEX.overall_notes[overalls().indexOf(board)].map((note) => element("p", {}, note)),
    element(
      "p",
      {},
      "Under a family stands the mean over its seeds. Small print is a 95 % interval of the stratified bootstrap. ",
      element("a", { href: "#/rules" }, "How boards are made"),
      ".",
    ),
  );

// The share of runs at or below each score, drawn by hand: a higher curve is better.
const profiles = (board, rows) => {
  const { width, height, left, right, top, bottom } = PROFILE;
  const x = scaled(board.limits, left, width - right);
  const y = scaled([0, 1], height - bottom, top);
  const text = (content, at) => drawn("text", at, content);
  const marks = [0, 0.25, 0.5, 0.75, 1].flatMap((share) => [
    text(`${100 * share} %`, { x: left - 5, y: y.at(share) + 4, "text-anchor": "end" }),
    text(String(share), { x: x.at(share), y: height - bottom + 15, "text-anchor": "middle" }),
  ]);
  const curves = rows.map(({ entry, profile }) => {
    const line = drawn("path", { class: "curve", d: path(board.limits, profile, x, y, false) });
    line.style.stroke = colours.of(entry);
    return line;
  });
  const label = `Share of runs against the largest score: ${rows.map(({ entry }) => entry).join(", ")}.`;
  const chart = drawn(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, class: "small profile", role: "img", "aria-label": label },
    drawn("path", { class: "frame", d: `M${left} ${top}V${height - bottom}H${width - right}` }),
    drawn("path", { class: "ruler", d: `M${x.at(1)} ${top}V${height - bottom}` }),
    marks,
    text("score at most", { x: width - right, y: height - 4, "text-anchor": "end" }),
    curves,
  );
  const key = rows.map(({ entry }) => {
    const dot = element("i", { class: "dot" });
    dot.style.background = colours.of(entry);
    return element("li", {}, dot, linkTo(entry));
  });
  return [
    element("ul", { class: "legend" }, key),
    element(
      "figure",
      { class: "curves" },
      chart,
      element("figcaption", {}, "The share of runs, all families alike, with at most this score. The best entries with raw weights."),
    ),
  ];
};
