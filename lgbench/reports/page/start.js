// The first page: which entries are best over all families, a picture of each family, and which claims hold.

const MAX_FIRST_ROWS = 10;
const MAX_FIRST_DRAWN = 6;

const startView = () => {
  const board = overalls().find((other) => other.metric.name === INDEX.start.metric && protocolOf(other) === INDEX.start.protocol);
  const names = drawnOnStart(board);
  colours.keep(names);
  return {
    title: "overview",
    page: "start",
    nodes: [
      heading("Length generalization at a glance"),
      element(
        "p",
        { class: "lead" },
        "Models are trained on short inputs and tested on long ones. Protocol ",
        `${INDEX.start.protocol} · ${labelOf(INDEX.start.metric)}, ${direction(INDEX.metrics[INDEX.start.key])}.`,
      ),
      ...(board ? [bestOfAll(board)] : []),
      picturesOfFamilies(names),
      ...(INDEX.claims.decided ? [claimsAtAGlance()] : []),
    ],
  };
};

// The baseline, and the best entries with raw weights: of all families where there is such a board, else of the first family.
const drawnOnStart = (board) => {
  const ranked = board ?? boardOf(startBoards()[0]);
  const raw = ranked.rows.map(({ entry }) => entry).filter((entry) => weightsOf(entry) === "raw");
  const best = raw.slice(0, MAX_FIRST_DRAWN);
  return raw.includes(ranked.baseline) && !best.includes(ranked.baseline) ? [...best.slice(0, -1), ranked.baseline] : best;
};

// A family without runs under the first protocol is drawn under another, and its caption says so.
const startBoards = () => {
  const wanted = { ...INDEX.start, version: null }; // versions of tasks are each family's own
  const families = INDEX.families.map(({ name }) => nearest(name, wanted)).filter((pageBoard) => pageBoard !== null);
  const measured = families.filter(({ metric }) => metric === INDEX.start.metric);
  const first = measured.filter(({ protocol }) => protocol === INDEX.start.protocol);
  return measured.length ? [...first, ...measured.filter((other) => !first.includes(other))] : [firstBoard()];
};

const bestOfAll = (board) => {
  const best = { ...board, rows: board.rows.slice(0, MAX_FIRST_ROWS) };
  return section(
    "Best over all families",
    element(
      "p",
      {},
      `OOD ${board.metric.label} as a share of chance, the interquartile mean (IQM) over families and seeds: 0 is perfect, 1 is as bad as chance.`,
    ),
    scrolling("Table: best over all families", overallTable(best).table),
    element("p", {}, element("a", { href: linkToOverall(board) }, `All ${board.rows.length} entries, and their performance profiles`)),
  );
};

// How many verdicts of each kind a claim has, under each protocol.
const claimsAtAGlance = () => {
  const claims = claimsOf("all");
  const protocols = protocolsOf(claims.flatMap(decidedOf));
  const lines = claims.map((claim) => {
    const cells = protocols.map((protocol) => {
      const own = decidedOf(claim).filter((verdict) => verdict.protocol === protocol);
      return element("td", { class: "claim" }, own.length ? countsOf(own) : MISSING);
    });
    return element("tr", {}, element("th", { scope: "row", class: "name sentence" }, claim.claim), cells);
  });
  const header = [["claim", "name"], ...protocols.map((protocol) => [protocol, "claim"])];
  return section(
    "Which published claims hold",
    element("p", {}, "Of each claim, the number of tests with each verdict: a test is of one task or family, and of one pair of entries."),
    simpleTable("Verdicts by claim", header, lines),
    element("p", {}, element("a", { href: "#/claims" }, "Every verdict, with its difference and interval")),
  );
};

const countsOf = (verdicts) =>
  STATES.map((state) => [state, verdicts.filter((each) => each.state === state).length])
    .filter(([, count]) => count)
    .flatMap(([state, count]) => [flag(state, `${count} ${state}`), " "]);

const picturesOfFamilies = (names) => {
  const pictures = startBoards().flatMap((pageBoard) => {
    const rows = boardOf(pageBoard).rows.filter(({ entry }) => names.includes(entry));
    if (!rows.length) return [];
    const canvas = element("div", { class: "canvas" });
    drawInTurn(canvas, pageBoard, rows);
    const under = pageBoard.protocol === INDEX.start.protocol ? "" : `, protocol ${pageBoard.protocol}`;
    const caption = element("figcaption", {}, element("a", { href: linkToBoard(pageBoard) }, titleOf(pageBoard) + under));
    return [element("figure", { class: "curves" }, caption, canvas)];
  });
  return section("Each family", legend(boardOf(startBoards()[0]), names), element("div", { class: "pictures" }, pictures));
};
