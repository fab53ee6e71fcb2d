// Claims of papers, and what these runs say of them. A verdict is a word; its colour says nothing more.

const STATES = ["confirmed", "refuted", "undecided"];

const decidedOf = (claim) => claim.verdicts.filter(({ state }) => state !== "not run");

const protocolsOf = (verdicts) => INDEX.protocols.filter((name) => verdicts.some(({ protocol }) => protocol === name));

const claimsView = () => {
  if (!INDEX.claims.length) return nowhere();
  return {
    title: "claims",
    page: "claims",
    nodes: [
      heading("Which published claims hold"),
      element(
        "p",
        { class: "lead" },
        "A claim is confirmed or refuted where the 95 % interval of the difference, paired by seed, lies beyond its margin and p, " +
          "corrected for all tests of the claim under one protocol, is below 0.05. Else it is undecided.",
      ),
      verdictCounts(),
      INDEX.undecided ? withoutVerdict(INDEX.undecided) : null,
      claimList((claim) => protocolsOf(decidedOf(claim))),
    ],
  };
};

const withoutVerdict = (count) =>
  element(
    "p",
    {},
    `${plural(count, "other claim")} ${count === 1 ? "has" : "have"} no verdict from these runs. `,
    element("code", {}, "lgbench claims --missing"),
    " lists the commands that decide.",
  );

const verdictCounts = () => {
  const verdicts = INDEX.claims.flatMap(decidedOf);
  const protocols = protocolsOf(verdicts);
  const lines = protocols.map((protocol) => {
    const own = verdicts.filter((verdict) => verdict.protocol === protocol);
    const counts = STATES.map((state) => element("td", { class: "number" }, String(own.filter((each) => each.state === state).length)));
    return element("tr", {}, element("th", { scope: "row", class: "name" }, protocol), counts);
  });
  return simpleTable("Verdicts by protocol", [["protocol", "name"], ...STATES.map((state) => [state, "number"])], lines);
};

// Each claim with the number of tests of each verdict, under its protocols of `chosen`.
const claimList = (chosen) =>
  element(
    "ul",
    { class: "claims" },
    INDEX.claims.map((claim) =>
      element(
        "li",
        {},
        element("p", {}, element("a", { href: link("claim", claim.name) }, claim.claim), " ", element("span", { class: "muted" }, claim.source.paper)),
        chosen(claim).map((protocol) => element("p", {}, countsOf(claim, protocol), element("span", { class: "muted", ...explains(protocol) }, protocol))),
      ),
    ),
  );

const countsOf = (claim, protocol) => {
  const own = decidedOf(claim).filter((verdict) => verdict.protocol === protocol);
  return STATES.map((state) => [state, own.filter((each) => each.state === state).length])
    .filter(([, count]) => count)
    .flatMap(([state, count]) => [flag(state, `${count} ${state}`), " "]);
};

const claimView = (name) => {
  const claim = INDEX.claims.find((other) => other.name === name);
  if (!claim) return nowhere();
  const { title, paper, place } = claim.source;
  return {
    title: claim.name,
    page: "claims",
    nodes: [
      element("p", { class: "crumb" }, element("a", { href: "#/claims" }, "Claims"), ` · ${claim.name}`),
      heading(claim.claim),
      element("p", { class: "lead" }, prose([title, paper, place].filter(Boolean).join(", "))),
      claim.note ? element("p", {}, prose(claim.note)) : null,
      verdictsSection(claim),
      runsOfClaim(claim),
      claim.reasons.length || claim.commands.length
        ? element(
            "details",
            {},
            element("summary", {}, "What is undecided or was not run"),
            element("ul", {}, claim.reasons.map((reason) => element("li", {}, prose(reason)))),
            claim.commands.map((line) => commandLine(line)),
          )
        : null,
    ],
  };
};

const verdictsSection = (claim) => {
  const decided = decidedOf(claim);
  const protocols = protocolsOf(decided);
  const parts = distinct(decided.map(({ task, expected }) => `${task}\n${expected}`));
  const lines = parts.map((part) => {
    const own = decided.filter(({ task, expected }) => `${task}\n${expected}` === part);
    const cells = protocols.map((protocol) => verdictCell(own.find((verdict) => verdict.protocol === protocol)));
    return element(
      "tr",
      {},
      element("th", { scope: "row", class: "name" }, linkToTask(own[0].task)),
      element("td", {}, ...breakable(own[0].expected)),
      cells,
    );
  });
  const header = [["task", "name"], ["expected", null], ...protocols.map((protocol) => [protocol, "claim"])];
  return section(
    "Verdicts by protocol",
    element("p", {}, "A number is the first entry less the second, or less what is claimed, with its 95 % interval over seeds."),
    simpleTable(claim.claim, header, lines),
  );
};

// Pages of the entries under test, which list their runs, and comparisons of both entries of a test.
const runsOfClaim = (claim) => {
  const decided = decidedOf(claim);
  const under = (metric, parts) =>
    protocolsOf(decided).flatMap((protocol) => {
      const shown = INDEX.boards.some((own) => own.metric === metric && own.protocol === protocol && own.entries.includes(parts.at(-1)));
      return shown ? [" ", element("a", { href: link(...parts, metric, protocol) }, protocol)] : [];
    });
  const metric = INDEX.start.metric;
  const entries = distinct(claim.tests.flatMap(({ entry, against }) => [entry, against])).filter((entry) => entry && known(entry));
  const pairs = claim.tests.filter(({ entry, against }) => known(entry) && known(against));
  return section(
    "The runs",
    element("ul", {}, entries.map((entry) => element("li", {}, ...breakable(entry), ":", under(metric, ["entry", entry])))),
    element("ul", {}, pairs.map(({ entry, against }) => element("li", {}, `${entry} beside ${against}:`, under(metric, ["compare", entry, against])))),
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
    element("span", { class: "interval" }, `${ends}${plural(verdict.n, "seed")}${verdict.fitted < verdict.n ? `, ${verdict.fitted} fit` : ""}`),
  );
};
