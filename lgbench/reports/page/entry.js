// An entry: its results on all boards, every seed, its training, its configuration, and the origin of its runs.

const entryView = async (entry, metric, protocol) => {
  if (!known(entry)) return nowhere();
  const own = INDEX.boards.filter((pageBoard) => pageBoard.entries.includes(entry));
  const metrics = distinct(own.map((pageBoard) => pageBoard.metric));
  const protocols = distinct(own.map((pageBoard) => pageBoard.protocol));
  const wanted = { metric: metric ?? metrics[0], protocol: protocol ?? protocols.find((name) => name === INDEX.start.protocol) ?? protocols[0] };
  const pageBoards = own.filter((pageBoard) => pageBoard.metric === wanted.metric && pageBoard.protocol === wanted.protocol);
  if (!pageBoards.length) return nowhere();
  await Promise.all([loadBoards(wanted), loadRuns(entry, wanted.protocol)]);
  const runs = runsOf(entry, wanted.protocol);
  const results = pageBoards.map((pageBoard) => {
    const board = boardOf(pageBoard);
    return { pageBoard, board, row: board.rows.find((row) => row.entry === entry) };
  });
  return {
    title: entry,
    page: "entry",
    nodes: [
      element("p", { class: "crumb" }, "Entry"),
      heading(entry),
      element(
        "div",
        { class: "facets" },
        facet("Weights", siblings(entry, wanted)),
        facet("Metric", metrics.map((name) => ({
          text: labelOf(name),
          href: linkToEntry(entry, name, wanted.protocol),
          current: name === wanted.metric,
        }))),
        facet("Protocol", protocols.map((name) => ({
          text: name,
          href: linkToEntry(entry, wanted.metric, name),
          current: name === wanted.protocol,
        }))),
      ),
      compareForm(entry, null, wanted),
      resultsSection(entry, results),
      seedsSection(results),
      trainingSection(entry, runs),
      ...internalsSection(entry, wanted.protocol),
      ...tuningSection(runs),
      configurationSection(runs),
      provenanceSection(runs),
    ],
  };
};

const siblings = (entry, wanted) =>
  entries
    .filter((other) => baseOf(other) === baseOf(entry))
    .map((other) => ({
      text: weightsOf(other),
      href: linkToEntry(other, wanted.metric, wanted.protocol),
      current: other === entry,
    }));

const resultsSection = (entry, results) => {
  const header = [
    ["board", "name"], ["OOD", "number"], ["tier", "standing"], ["rank interval", "standing"], ["entries", "standing"],
    ["effective length", "number"], ["seeds", "seeds"], ["ID", "number"],
  ];
  const lines = results.map(({ pageBoard, board, row }) =>
    element(
      "tr",
      { class: pageBoard.kind },
      element("th", { scope: "row", class: "name" }, element("a", { href: linkToBoard(pageBoard) }, titleOf(pageBoard))),
      number(cellOf(row, "OOD"), row.seeds.length),
      element("td", { class: "standing" }, tierChip(row)),
      element("td", { class: "standing" }, rankInterval(row)),
      element("td", { class: "standing" }, String(board.rows.length)),
      element("td", { class: "number" }, effectiveLength(board, row)),
      element("td", { class: "seeds" }, String(row.seeds.length), flags(row).flatMap((flag) => [" ", flag])),
      number(cellOf(row, "ID"), row.seeds.length),
    ),
  );
  const { board: { metric }, pageBoard: { protocol } } = results[0];
  return section(
    "Results",
    element("p", { class: "lead" }, prose(`${metric.title}, ${direction(metric)} · protocol ${protocol}`)),
    simpleTable(`Results of ${entry}`, header, lines),
  );
};

const seedsSection = (results) =>
  section(
    "Every seed",
    results.map(({ pageBoard, board, row }) =>
      element(
        "details",
        { open: pageBoard.kind === "family" },
        element("summary", {}, titleOf(pageBoard), element("span", { class: "muted" }, ` ${plural(row.seeds.length, "seed")}`)),
        seedsTable(pageBoard, row),
      ),
    ),
  );

// The columns of a board as [title, kind, length].
const columnsOf = (board) => [["ID", "ID", null], ["OOD", "OOD", null], ...allLengths(board).map((l) => [String(l), "length", l])];

const seedsTable = (pageBoard, row) => {
  const board = boardOf(pageBoard);
  const values = seedsOf(row.entry, pageBoard);
  const kept = columnsOf(board).map((column) => [...column, cellOf(row, column[1], column[2])]).filter(([, , , cell]) => cell !== null);
  const header = [["seed", "name"], ...kept.map(([title]) => [title, "number"])];
  const lines = row.seeds.map((seed, at) => {
    const marks = flaggedSeeds(row).filter(([, seeds]) => seeds.includes(seed));
    const cells = kept.map(([, , , cell]) => {
      const value = values[row.cells.indexOf(cell)][at];
      return element("td", { class: "number" }, value === null ? MISSING : digits(value));
    });
    const name = [`seed ${seed}`, ...marks.flatMap(([what]) => [" ", flag(what, what)])];
    return element("tr", {}, element("th", { scope: "row", class: "name" }, name), cells);
  });
  const means = element(
    "tr",
    { class: "mean-row" },
    element("th", { scope: "row", class: "name" }, "mean"),
    kept.map(([, , , cell]) => number(cell, row.seeds.length)),
  );
  const contextFree = element(
    "tr",
    { class: "context-free" },
    element("th", { scope: "row", class: "name" }, "context-free baseline"),
    kept.map(([, kind, length]) => level(contextFreeOf(board, kind, length))),
  );
  return simpleTable(`Every seed on ${titleOf(pageBoard)}`, header, [...lines, means, board.context_free.length ? contextFree : null]);
};

const byTask = (runs) =>
  distinct(runs.map((run) => run.task)).map((task) => [task, runs.filter((run) => run.task === task)]);

const trainingSection = (entry, runs) => {
  const known = runs.filter((run) => run.train_loss.steps.length || run.gradient_norm.steps.length);
  if (!known.length) return section("Training", element("p", {}, "Its runs hold no training curves."));
  const seeds = distinct(known.map((run) => run.seed)).sort((a, b) => a - b);
  const slotOf = (seed) => seeds.indexOf(seed);
  const lines = (own, name) =>
    own.map((run) => ({ name: `seed ${run.seed}`, slot: slotOf(run.seed), at: run[name].steps, values: run[name].values, end: run.diverged_step }));
  const charts = byTask(known).map(([task, own]) =>
    element(
      "div",
      { class: "task" },
      element("h3", {}, task),
      smallChart(lines(own, "train_loss"), "training loss", STEPS, false),
      smallChart(lines(own, "gradient_norm"), "gradient norm, logarithmic", STEPS, true),
      own
        .filter((run) => run.diverged_step !== null)
        .map((run) => element("p", { class: "flag diverged" }, `seed ${run.seed} diverged at step ${run.diverged_step}`)),
    ),
  );
  const shared = weightsOf(entry) === "raw" ? null : element("p", {}, `The training is that of ${baseOf(entry)}; ${weightsOf(entry)} averages its weights.`);
  return section("Training", shared, slotKey(seeds.map((seed) => `seed ${seed}`)), element("div", { class: "trainings" }, charts));
};

// What probes have read inside the models of an entry, if its runs have any: a chart for each task and probe, a line for each layer.
const internalsSection = (entry, protocol) => {
  const found = internalsOf(entry, protocol);
  if (!found.length) return [];
  const layers = distinct(found.flatMap((probe) => probe.layers.map((line) => line.layer))).sort((a, b) => (a ?? 0) - (b ?? 0));
  const nameOf = (layer) => (layer === null ? "whole model" : `layer ${layer}`);
  const chart = (probe) => {
    const series = probe.layers.map((line) => ({ name: nameOf(line.layer), slot: layers.indexOf(line.layer), at: line.lengths, values: line.values, end: null }));
    const values = series.flatMap((line) => line.values);
    const logarithmic = Math.min(...values) > 0 && Math.max(...values) > 4 * Math.min(...values);
    return smallChart(series, logarithmic ? `${probe.title}, logarithmic` : probe.title, LENGTHS, logarithmic);
  };
  const tasks = distinct(found.map((probe) => probe.task)).map((task) => {
    const own = found.filter((probe) => probe.task === task);
    return element(
      "details",
      { open: task === found[0].task },
      element("summary", {}, task, element("span", { class: "muted" }, ` ${plural(Math.max(...own.flatMap((probe) => probe.layers.map((line) => line.seeds))), "seed")}`)),
      element("div", { class: "internals" }, own.map(chart)),
    );
  });
  const lead = "What probes read at the end of the training, the mean over heads and seeds, against length on a logarithmic axis.";
  return [section("Inside", element("p", { class: "lead" }, lead), slotKey(layers.map(nameOf)), tasks)];
};

// The losses of the tuning runs that chose learning rates: a line for each task and rate. The first seed of a task has them.
const tuningSection = (runs) => {
  const tuned = runs.filter(({ tuning }) => tuning !== null);
  if (!tuned.length) return [];
  const seeds = distinct(tuned.flatMap(({ tuning }) => tuning.seeds)).sort((a, b) => a - b);
  const loss = (value) => (value === undefined ? MISSING : value === null ? "diverged" : digits(value));
  const lines = tuned.flatMap(({ task, tuning }) =>
    tuning.tried.map(([rate, losses], at) =>
      element(
        "tr",
        { class: rate === tuning.chosen ? "mean-row" : null },
        element("th", { scope: "row", class: "name" }, at ? "" : task),
        element("td", { class: "number" }, String(rate)),
        seeds.map((seed) => element("td", { class: "number" }, loss(losses[tuning.seeds.indexOf(seed)]))),
        element("td", {}, rate === tuning.chosen ? "chosen" : ""),
      ),
    ),
  );
  const header = [["task", "name"], ["learning rate", "number"], ...seeds.map((seed) => [`loss, seed ${seed}`, "number"]), ["", null]];
  const steps = distinct(tuned.map(({ tuning }) => String(tuning.steps))).join(" or ");
  const rule = `The rate with the smallest training loss, in the last tenth of ${steps} steps, on seeds that no result has.`;
  return [section("Learning rate", element("p", { class: "lead" }, rule), simpleTable("Tuning of the learning rate", header, lines))];
};

// The settings of an experiment as [name, text], however deep they stand. Metadata are strangers' files: nothing is sure of them.
const settings = (node, prefix = "") => {
  if (isPairs(node)) return node.flatMap(([key, value]) => settings(value, `${prefix}.${key}`));
  if (Array.isArray(node)) return [[prefix, node.join(", ") || "none"]];
  if (node === null || typeof node !== "object") return [[prefix, node === null ? "none" : String(node)]];
  return Object.entries(node).flatMap(([key, value]) => settings(value, prefix ? `${prefix}.${key}` : key));
};

const isPairs = (node) => Array.isArray(node) && node.length > 0 && node.every((item) => Array.isArray(item) && item.length === 2);

const SETTING_NAMES = { "protocol.name": "protocol", "protocol.version": "protocol version", "protocol.changes": "changes" };

// Options such as model.width stand under their own names, and the changes of a protocol in one line.
const experimentSettings = (experiment) => {
  const changes = experiment?.protocol?.changes;
  const lines = isPairs(changes) ? [["changes", changes.map(([key, value]) => `${key}=${value}`).join(" ")]] : [];
  const { plugins, ...rest } = experiment ?? {};
  const others = settings(rest).filter(([name]) => !(lines.length && name.startsWith("protocol.changes.")));
  return [...others.map(([name, value]) => [SETTING_NAMES[name] ?? name.replace(/^options\.(?=.)/, ""), value]), ...lines];
};

// Which values each setting has, and which runs have them.
const tally = (runs, settingsOfRun) => {
  const found = new Map();
  for (const run of runs) {
    for (const [name, value] of settingsOfRun(run)) {
      if (!found.has(name)) found.set(name, new Map());
      const values = found.get(name);
      values.set(value, [...(values.get(value) ?? []), run]);
    }
  }
  return found;
};

const unanimous = (values, runs) => values.size === 1 && [...values.values()][0].length === runs.length;

const definitions = (pairs) =>
  element("dl", { class: "facts" }, pairs.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));

const OF_THE_RUN = new Set(["task", "family", "task_version", "entry", "seed"]);

const configurationSection = (runs) => {
  const found = tally(runs, (run) => experimentSettings(run.about.experiment).filter(([name]) => !OF_THE_RUN.has(name)));
  if (!found.size) return section("Configuration", element("p", {}, "Its runs do not say how they were configured."));
  const same = [...found].filter(([, values]) => unanimous(values, runs));
  const other = [...found].filter(([, values]) => !unanimous(values, runs));
  const text = (values, own) => {
    const here = [...values].filter(([, having]) => having.some((run) => own.includes(run)));
    return here.map(([value, having]) => {
      const count = having.filter((run) => own.includes(run)).length;
      return count === own.length ? value : `${value} (${plural(count, "run")})`;
    }).join("; ") || MISSING;
  };
  const lines = byTask(runs).map(([task, own]) =>
    element(
      "tr",
      {},
      element("th", { scope: "row", class: "name" }, task),
      other.map(([, values]) => element("td", { class: "number" }, text(values, own))),
    ),
  );
  const header = [["task", "name"], ...other.map(([name]) => [name, "number"])];
  return section(
    "Configuration",
    definitions(same.map(([name, values]) => [name, [...values.keys()][0]])),
    other.length ? [element("h3", {}, "By task"), simpleTable("Settings by task", header, lines)] : null,
  );
};

const provenanceSection = (runs) => {
  const environment = (run) => {
    const { date, ...rest } = run.about.environment ?? {};
    const { execution } = run.about;
    const used = Array.isArray(run.about.plugins) ? run.about.plugins : [];
    const plugins = Object.fromEntries(used.map((plugin) => [plugin.name, [plugin.version, plugin.source].filter(Boolean).join(" ")]));
    const measured = ["measurements", run.measurements.join(", ") || "none"];
    return [...settings(plugins, "plugin"), measured, ...settings(rest), ...settings(execution ?? {})];
  };
  const facts = [...tally(runs, environment)].map(([name, values]) => [name, provenanceValue(values, runs)]);
  const dates = runs.map((run) => run.about.environment?.date).filter((date) => typeof date === "string").sort();
  const when = dates.length ? [["date", dates[0] === dates.at(-1) ? dates[0] : `${dates[0]} to ${dates.at(-1)}`]] : [];
  return section(
    "Provenance",
    definitions([["runs", String(runs.length)], ...when, ...spent(runs), ...facts]),
    element("details", {}, element("summary", {}, "Every run"), runsTable(runs)),
  );
};

// From the shortest training of a run to the longest.
const spent = (runs) => {
  const seconds = runs.map((run) => run.about.seconds?.train).filter((value) => typeof value === "number").sort((a, b) => a - b);
  if (!seconds.length) return [];
  const [least, most] = [seconds[0], seconds.at(-1)].map((value) => value.toFixed(1));
  return [["seconds of training", least === most ? least : `${least} to ${most} a run`]];
};

const provenanceValue = (values, runs) => {
  if (unanimous(values, runs)) return [...values.keys()][0];
  const list = [...values].map(([value, having]) => element("li", {}, `${value} (${plural(having.length, "run")})`));
  return [element("span", { class: "flag differs" }, "differs between runs"), element("ul", {}, list)];
};

const runsTable = (runs) => {
  const seconds = (run, name) => {
    const value = run.about.seconds?.[name];
    return typeof value === "number" ? value.toFixed(1) : MISSING;
  };
  const header = [
    ["task", "name"], ["seed", "number"], ["run", null], ["date", null], ["device", null], ["threads", "number"],
    ["s training", "number"], ["s in all", "number"], ["diverged at step", "number"],
  ];
  const lines = runs.map((run) => {
    const { date, device, threads } = run.about.environment ?? {};
    return element(
      "tr",
      {},
      element("th", { scope: "row", class: "name" }, run.task),
      element("td", { class: "number" }, String(run.seed)),
      element("td", {}, element("code", {}, run.run_id)),
      element("td", {}, String(date ?? MISSING)),
      element("td", {}, String(device ?? MISSING)),
      element("td", { class: "number" }, String(threads ?? MISSING)),
      element("td", { class: "number" }, seconds(run, "train")),
      element("td", { class: "number" }, seconds(run, "total")),
      element("td", { class: "number" }, run.diverged_step === null ? MISSING : String(run.diverged_step)),
    );
  });
  return simpleTable("Every run", header, lines);
};
