// Reads the data of the page, which are scripts in the folder data/: a page that is opened from a disk may fetch nothing else.
// Nothing is computed here: every number of a board is the one that `lgbench leaderboard --format json` prints.

const INDEX = window.lgbench.index;

const remembered = (make) => {
  const made = new Map();
  return (key) => {
    if (!made.has(key)) made.set(key, make(key));
    return made.get(key);
  };
};

class NotLoaded extends Error {}

// Boards of a protocol and a metric, their curves against training steps, and runs of an entry under a protocol with the values of
// its seeds are files of their own, loaded by the first view that shows them.
const loaded = remembered(
  (file) =>
    new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = `data/${file}.js`;
      script.addEventListener("load", resolve);
      script.addEventListener("error", () => reject(new NotLoaded(`data/${file}.js is missing; it belongs beside this page.`)));
      document.head.append(script);
    }),
);
const runsFile = (entry, protocol) => `runs-${INDEX.protocols.indexOf(protocol)}-${INDEX.trained.indexOf(baseOf(entry))}`;
const rankedBy = [...new Set(INDEX.boards.map(({ metric }) => metric))];
const fileOf = (kind, { protocol, metric }) => `${kind}-${INDEX.protocols.indexOf(protocol)}-${rankedBy.indexOf(metric)}`;
const loadBoards = (wanted) => loaded(fileOf("boards", wanted));
const loadSteps = (wanted) => loaded(fileOf("steps", wanted));
const loadRuns = (entry, protocol) => loaded(runsFile(entry, protocol));

// These five need their file to be loaded.
const boardOf = (pageBoard) => window.lgbench[fileOf("boards", pageBoard)][pageBoard.id];
const stepsOf = (pageBoard) => window.lgbench[fileOf("steps", pageBoard)][pageBoard.id];
const runsOf = (entry, protocol) => window.lgbench[runsFile(entry, protocol)].runs;
// The values of every seed of an entry on a board, for each cell of its row.
const seedsOf = (entry, pageBoard) => window.lgbench[runsFile(entry, pageBoard.protocol)].seeds[entry][pageBoard.id];
const internalsOf = (entry, protocol) => window.lgbench[runsFile(entry, protocol)].internals[entry];

const metrics = Object.values(INDEX.metrics);
const labelOf = (name) => metrics.find((metric) => metric.name === name)?.label ?? name;
const direction = (metric) => `${metric.lower_is_better ? "lower" : "higher"} is better`;
const perfectOf = (metric) => (metric.lower_is_better ? metric.low : metric.high);

const entries = Object.keys(INDEX.entries);
const known = (entry) => Object.hasOwn(INDEX.entries, entry);
// Entry and protocol of an own entry below the published ones, which is named as in "lstm (short/1)".
const unranked = (name) => (known(name) ? undefined : name.match(/^(?<entry>.*) \((?<protocol>.*)\)$/)?.groups);
const weightsOf = (entry) => INDEX.entries[unranked(entry)?.entry ?? entry]?.weights ?? "raw";
const placeOf = (entry) => INDEX.entries[entry]?.place ?? 0;
const baseOf = (entry) => INDEX.entries[entry]?.base ?? entry;
const allWeights = [...new Set(entries.map(weightsOf))].sort((a, b) => (b === "raw") - (a === "raw") || (a < b ? -1 : 1));

// The label of a protocol, of a board or a grid.
const protocolOf = ({ protocol }) =>
  [`${protocol.name}/${protocol.version}`, ...protocol.changes.map(([key, value]) => `${key}=${value}`)].join(" ");

const distinct = (values) => [...new Set(values)];

// The board of a name that is most like the wanted one: the same metric first, then the same protocol, then the same versions.
const nearest = (name, wanted) => {
  const likeness = (pageBoard) =>
    8 * (pageBoard.metric === wanted.metric) +
    4 * (pageBoard.protocol === wanted.protocol) +
    2 * (pageBoard.version === wanted.version) +
    (pageBoard.metric_version === wanted.metric_version);
  const found = INDEX.boards.filter((pageBoard) => pageBoard.name === name);
  return found.reduce((best, pageBoard) => (best && likeness(best) >= likeness(pageBoard) ? best : pageBoard), null);
};

// The board of a name where a reader starts, or like what was asked. Versions of tasks are each family's own.
const startBoardOf = (name, asked = {}) => nearest(name, { ...INDEX.start, version: null, ...asked });
const firstBoard = () => startBoardOf(INDEX.start.name);

// Routes. A name can hold anything, so each part is encoded; + and @ stay as they are, to be read by people.
const part = (text) => encodeURIComponent(text).replaceAll("%2B", "+").replaceAll("%40", "@");
const link = (...parts) => `#/${parts.map(part).join("/")}`;
const linkToBoard = ({ name, metric, protocol, version, metric_version }) =>
  link("task", name, metric, protocol, String(version), String(metric_version));
const linkToEntry = (entry, ...rest) => link("entry", entry, ...rest);

const route = () => {
  const parts = location.hash.replace(/^#\/?/, "").split("/");
  try {
    return parts.map(decodeURIComponent).filter((text) => text !== "");
  } catch {
    return ["malformed"];
  }
};

// Numbers of boards have four digits, and all four are shown.
const MISSING = "–";
const digits = (value) => value.toFixed(4);
const interval = (cell) => (cell.low === null ? "" : `${digits(cell.low)}–${digits(cell.high)}`);
const cellOf = (row, kind, length = null) => row.cells.find((cell) => cell.kind === kind && cell.length === length) ?? null;
const contextFreeOf = (board, kind, length = null) =>
  board.context_free.find((level) => level.kind === kind && level.length === length)?.mean ?? null;
const rankInterval = (row) => (row.rank_interval === null ? MISSING : distinct(row.rank_interval).join("–"));
const tierOf = (row) => (row.tier === null ? MISSING : String(row.tier));
const percent = (share) => (share > 0 && share < 0.01 ? (100 * share).toFixed(1) : (100 * share).toFixed(0));

const compared = (board) => board.rows.some((row) => row.against !== null);
// The sign of zero is that of the number before it was rounded.
const signed = (value) => `${value < 0 || Object.is(value, -0) ? "−" : "+"}${digits(Math.abs(value))}`;

const allLengths = remembered((board) =>
  distinct(board.rows.flatMap((row) => row.cells.map((cell) => cell.length)).filter((length) => length !== null)).sort(
    (a, b) => a - b,
  ),
);
const shownLengths = (board) => allLengths(board).filter((length) => length >= board.train_length);

// In training lengths. A metric without a threshold has none.
const effectiveLength = (board, row) => {
  if (!row.effective_length) return MISSING;
  const most = row.effective_length === allLengths(board).at(-1) ? "≥ " : "";
  if (!board.train_length) return `${most}length ${row.effective_length}`;
  const multiple = row.effective_multiple;
  return `${most}${multiple < 100 ? Number(multiple.toPrecision(3)) : multiple.toFixed(0)}×`;
};

const about = (pageBoard) => {
  const board = boardOf(pageBoard);
  return [
    `${board.metric.title}, ${direction(board.metric)}`,
    board.tasks > 1 ? `mean over ${board.tasks} tasks` : null,
    board.train_length ? `trained to length ${board.train_length}` : null,
    `protocol ${pageBoard.protocol}`,
    `task version ${pageBoard.version}`,
    severalVersions(pageBoard.metric) ? `${board.metric.label} version ${pageBoard.metric_version}` : null,
  ].filter((text) => text !== null);
};

const severalVersions = (metric) => metrics.filter(({ name }) => name === metric).length > 1;

// The versions in which boards of one name, metric and protocol differ.
const versionsOf = (pageBoard, among) => {
  const several = (field) => distinct(among.map((other) => other[field])).length > 1;
  return [
    several("version") ? `task version ${pageBoard.version}` : null,
    several("metric_version") ? `${labelOf(pageBoard.metric)} version ${pageBoard.metric_version}` : null,
  ].filter((text) => text !== null);
};

// The name of a board, in a list of boards of one metric and one protocol.
const titleOf = (pageBoard) => {
  const { name, metric, protocol } = pageBoard;
  const alike = INDEX.boards.filter((other) => other.name === name && other.metric === metric && other.protocol === protocol);
  return [name, ...versionsOf(pageBoard, alike)].join(", ");
};

const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

// Text that a POSIX shell reads as one word, whatever an entry is called.
const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
