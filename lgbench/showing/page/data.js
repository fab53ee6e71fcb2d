// What is embedded in the page, read only when it is needed, and how its numbers are written. Nothing is computed here:
// every number of a board is the one that `lgbench leaderboard --format json` prints.

const read = (id) => JSON.parse(document.getElementById(id).textContent);

const remembered = (make) => {
  const made = new Map();
  return (key) => {
    if (!made.has(key)) made.set(key, make(key));
    return made.get(key);
  };
};

const INDEX = read("index");
const specsOf = remembered(() => read("specs"));
const boardOf = remembered((place) => read(`board-${place.id}`));
const runsOf = remembered((base) => (Object.hasOwn(INDEX.runs, base) ? read(`runs-${INDEX.runs[base]}`) : []));

const METRICS = {
  tvd: { short: "TVD", long: "total variation distance" },
  accuracy: { short: "accuracy", long: "accuracy" },
  roc_auc: { short: "ROC AUC", long: "area under the ROC curve" },
};
const metricOf = (name) => METRICS[name] ?? { short: name, long: name };
const lowerIsBetter = (metric) => INDEX.lower_is_better[metric];

const entries = Object.keys(INDEX.entries);
const known = (entry) => Object.hasOwn(INDEX.entries, entry);
const weightsOf = (entry) => INDEX.entries[entry]?.weights ?? "raw";
const baseOf = (entry) => INDEX.entries[entry]?.base ?? entry;
const allWeights = [...new Set(entries.map(weightsOf))].sort((a, b) => (b === "raw") - (a === "raw") || (a < b ? -1 : 1));

const distinct = (values) => [...new Set(values)];

// The board of a name that is most like the wanted one: the same metric first, then the same protocol and version.
const nearest = (name, wanted) => {
  const likeness = (place) =>
    4 * (place.metric === wanted.metric) + 2 * (place.protocol === wanted.protocol) + (place.version === wanted.version);
  const found = INDEX.boards.filter((place) => place.name === name);
  return found.reduce((best, place) => (best && likeness(best) >= likeness(place) ? best : place), null);
};

// Where a reader starts: of the first name's boards the one with most entries.
const firstPlace = () => {
  const { name, metric } = INDEX.boards[0];
  const own = INDEX.boards.filter((place) => place.name === name && place.metric === metric);
  return own.reduce((best, place) => (place.entries.length > best.entries.length ? place : best));
};

// Routes. A name can hold anything, so each part is encoded; + and @ stay as they are, to be read by people.
const part = (text) => encodeURIComponent(text).replaceAll("%2B", "+").replaceAll("%40", "@");
const link = (...parts) => `#/${parts.map(part).join("/")}`;
const linkToBoard = (place) => link("board", place.name, place.metric, place.protocol, String(place.version));
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
const placesOf = (row) => (row.places === null ? MISSING : distinct(row.places).join("–"));
const tierOf = (row) => (row.tier === null ? MISSING : String(row.tier));

const allLengths = remembered((board) =>
  distinct(board.rows.flatMap((row) => row.cells.map((cell) => cell.length)).filter((length) => length !== null)).sort(
    (a, b) => a - b,
  ),
);
const shownLengths = (board) => allLengths(board).filter((length) => length >= board.train_length);

const holdsTo = (board, row) => {
  if (!row.effective_length) return MISSING;
  const most = row.effective_length === allLengths(board).at(-1) ? "≥ " : "";
  return board.train_length ? `${most}${row.effective_multiple}×` : `${most}length ${row.effective_length}`;
};

const about = (board) =>
  [
    `${metricOf(board.metric).long}, ${lowerIsBetter(board.metric) ? "lower" : "higher"} is better`,
    board.tasks > 1 ? `mean over ${board.tasks} tasks` : null,
    board.train_length ? `trained to length ${board.train_length}` : null,
    `protocol ${board.protocol}`,
    `task version ${board.task_version}`,
  ].filter((text) => text !== null);

const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

// Text that a POSIX shell reads as one word, whatever an entry is called.
const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
