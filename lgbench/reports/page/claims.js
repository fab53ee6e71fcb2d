// Claims of papers, and what these runs say of them. A verdict is a word; its colour says nothing more.

const claimsOf = remembered(() => read("claims"));

const claimsView = () => {
  if (!INDEX.claims.decided) return nowhere();
  const claims = claimsOf("all");
  return {
    title: "claims",
    page: "claims",
    nodes: [
      heading("Which published claims hold"),
      element(
        "p",
        { class: "lead" },
        "A claim is confirmed or refuted where the 95 % interval of the difference, paired by seed, lies beyond its margin and p, " +
          "corrected for all tests of the claim under one protocol, is below 0.05. Else it is undecided. A difference is that of " +
          "the first entry less the second.",
      ),
      verdictCounts(claims),
      ...(INDEX.claims.without ? [withoutVerdict(INDEX.claims.without)] : []),
      ...claims.map(claimSection),
    ],
  };
};

const STATES = ["confirmed", "refuted", "undecided"];

const decidedOf = (claim) => claim.verdicts.filter(({ state }) => state !== "not run");

const protocolsOf = (verdicts) => INDEX.protocols.filter((name) => verdicts.some(({ protocol }) => protocol === name));

const withoutVerdict = (count) =>
  element(
    "p",
    {},
    `${plural(count, "other claim")} ${count === 1 ? "has" : "have"} no verdict from these runs. `,
    element("code", {}, "lgbench claims --missing"),
    " lists the commands that decide.",
  );

const verdictCounts = (claims) => {
  const verdicts = claims.flatMap(decidedOf);
  const protocols = protocolsOf(verdicts);
  const lines = protocols.map((protocol) => {
    const own = verdicts.filter((verdict) => verdict.protocol === protocol);
    const counts = STATES.map((state) => element("td", { class: "number" }, String(own.filter((each) => each.state === state).length)));
    return element("tr", {}, element("th", { scope: "row", class: "name" }, protocol), counts);
  });
  return simpleTable("Verdicts by protocol", [["protocol", "name"], ...STATES.map((state) => [state, "number"])], lines);
};

const claimSection = (claim) => {
  const decided = decidedOf(claim);
  const protocols = protocolsOf(decided);
  const parts = distinct(decided.map(({ task, expected }) => `${task}\n${expected}`));
  const lines = parts.map((part) => {
    const own = decided.filter(({ task, expected }) => `${task}\n${expected}` === part);
    const cells = protocols.map((protocol) => verdictCell(own.find((verdict) => verdict.protocol === protocol)));
    return element(
      "tr",
      {},
      element("th", { scope: "row", class: "name" }, own[0].task),
      element("td", { class: "name", title: own[0].expected }, ...breakable(own[0].pair)),
      cells,
    );
  });
  const { title, paper, place } = claim.source;
  return section(
    claim.claim,
    element("p", { class: "lead" }, [title, paper, place].filter(Boolean).join(", ")),
    claim.note ? element("p", {}, claim.note) : null,
    simpleTable(claim.claim, [["task", "name"], ["test", "name"], ...protocols.map((protocol) => [protocol, "claim"])], lines),
    claim.reasons.length || claim.commands.length
      ? element(
          "details",
          {},
          element("summary", {}, "What is undecided or was not run"),
          element("ul", {}, claim.reasons.map((reason) => element("li", {}, reason))),
          claim.commands.map((line) => element("p", { class: "command" }, element("code", {}, line))),
        )
      : null,
  );
};

const verdictCell = (verdict) => {
  if (!verdict) return element("td", { class: "claim missing" }, MISSING);
  const chip = element("span", { class: `flag ${verdict.state.replaceAll(" ", "-")}` }, verdict.state);
  if (verdict.difference === null) return element("td", { class: "claim" }, chip);
  const ends = verdict.low === null ? "" : `${signed(verdict.low)} to ${signed(verdict.high)}, `;
  return element(
    "td",
    { class: "claim" },
    chip,
    " ",
    element("span", { class: "mean" }, signed(verdict.difference)),
    " ",
    element("span", { class: "interval" }, `${ends}${plural(verdict.n, "seed")}`),
  );
};
