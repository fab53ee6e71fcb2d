// Two entries side by side, board by board. The verdict is what the board says about the pair, and nothing more.

const verdict = (board, first, second) => {
  const [a, b] = [first, second].map((entry) => board.rows.find((row) => row.entry === entry));
  if (!a || !b) return { ahead: null, words: [`${a ? second : first} has no result here.`] };
  if (a.ahead_of.includes(second)) return { ahead: first, words: [strong(first), " is ahead of ", plain(second), "."] };
  if (b.ahead_of.includes(first)) return { ahead: second, words: [strong(second), " is ahead of ", plain(first), "."] };
  return { ahead: null, words: [plain(first), " and ", plain(second), " cannot be told apart."] };
};

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
  const other = entries.find((entry) => entry !== first) ?? first;
  const form = element(
    "form",
    { class: "pair", submit: submitted },
    second === null ? null : select("one", "Entry", first),
    select("other", second === null ? "Compare with" : "against", second ?? other),
    element("button", { type: "submit" }, "Compare"),
  );
  return form;
};

const compareView = (first, second, metric, protocol) => {
  const pair = [first ?? entries[0], second ?? entries.find((entry) => entry !== (first ?? entries[0])) ?? entries[0]];
  if (!pair.every(known)) return nowhere();
  const own = INDEX.boards.filter((place) => pair.some((entry) => place.entries.includes(entry)));
  const metrics = distinct(own.map((place) => place.metric));
  const protocols = distinct(own.map((place) => place.protocol));
  const wanted = { metric: metric ?? metrics[0], protocol: protocol ?? protocols[0] };
  const places = own.filter((place) => place.metric === wanted.metric && place.protocol === wanted.protocol);
  if (!places.length) return nowhere();
  const shared = places.filter((place) => pair.every((entry) => place.entries.includes(entry)));
  return {
    title: `${pair[0]} against ${pair[1]}`,
    page: "compare",
    nodes: [
      heading("Compare"),
      compareForm(...pair, wanted),
      element(
        "div",
        { class: "facets" },
        facet("Metric", metrics.map((name) => ({
          text: metricOf(name).short,
          href: link("compare", ...pair, name, wanted.protocol),
          current: name === wanted.metric,
        }))),
        facet("Protocol", protocols.map((name) => ({
          text: name,
          href: link("compare", ...pair, wanted.metric, name),
          current: name === wanted.protocol,
        }))),
      ),
      overview(places, pair),
    ],
    shown: (main) => {
      colours.keep(pair);
      main.append(...shared.map((place) => comparison(place, pair)));
    },
  };
};

const overview = (places, pair) => {
  const header = [["board", "name"], ["verdict", null], ...pair.map((entry) => [breakable(entry), "number"])];
  const lines = places.map((place) => {
    const board = boardOf(place);
    const cells = pair.map((entry) => {
      const row = board.rows.find((candidate) => candidate.entry === entry);
      return row ? number(cellOf(row, "score") ?? cellOf(row, "in range"), row.seeds.length) : number(null, 0);
    });
    const name = element("a", { href: linkToBoard(place) }, board.name);
    const said = element("td", { class: "verdict" }, verdict(board, ...pair).words);
    return element("tr", { class: place.kind }, element("th", { scope: "row", class: "name" }, name), said, cells);
  });
  return section(
    "At a glance",
    element(
      "p",
      { class: "lead" },
      `${metricOf(places[0].metric).long} beyond the training range, ${lowerIsBetter(places[0].metric) ? "lower" : "higher"} is better. ` +
        "Verdicts are corrected for all pairs of their board; the commands below test these two entries alone, paired by seed.",
    ),
    simpleTable("Verdicts by board", header, lines),
  );
};

const comparison = (place, pair) => {
  const board = boardOf(place);
  const rows = pair.map((entry) => board.rows.find((row) => row.entry === entry));
  const canvas = element("div", { class: "canvas" });
  drawWhenNear(canvas, board, rows);
  const columns = [["in range", "in range", null], ["beyond", "score", null], ...allLengths(board).map((l) => [String(l), "length", l])];
  const lines = columns.map(([title, kind, length]) =>
    element(
      "tr",
      {},
      element("th", { scope: "row", class: "name" }, title),
      rows.map((row) => number(cellOf(row, kind, length), row.seeds.length)),
    ),
  );
  const header = [["length", "name"], ...pair.map((entry) => [breakable(entry), "number"])];
  return section(
    board.name,
    element("p", { class: "verdict" }, verdict(board, ...pair).words),
    element(
      "div",
      { class: "side" },
      simpleTable(`Both entries on ${board.name}`, header, lines),
      element("figure", { class: "curves" }, legend(pair), canvas),
    ),
    element("p", { class: "command" }, "Paired differences: ", element("code", {}, command(place, pair))),
  );
};

const command = (place, pair) => {
  const several = distinct(INDEX.boards.map(({ protocol }) => protocol)).length > 1;
  const words = ["lgbench", "compare", ...pair, "--task", place.name, "--metric", place.metric];
  return [...words, ...(several ? ["--protocol", place.protocol] : [])].map(quoted).join(" ");
};
