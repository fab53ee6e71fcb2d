// Curves. The boards' are drawn by Vega-Lite, in its interpreter for expressions, since the page's policy allows no eval; the
// many small ones of a training by hand, since a hundred Vega views would take seconds. Colours are variables of the style
// sheet, so light, dark and print need no second drawing.

const SERIES = Array.from({ length: 8 }, (_, slot) => `var(--series-${slot + 1})`);
const colour = (slot) => SERIES[slot % SERIES.length];

// An entry has the colour of its place among all entries, on every view and in plots (slots in marks.py). Where two meet in a
// colour, the later one takes the next that is free. In one view an entry keeps its colour for as long as it is drawn.
class Colours {
  slots = new Map();

  forget() {
    this.slots.clear();
  }

  of(entry) {
    return colour(this.slots.get(entry) ?? 0);
  }

  keep(drawnEntries) {
    for (const entry of [...this.slots.keys()]) if (!drawnEntries.includes(entry)) this.slots.delete(entry);
    const added = drawnEntries.filter((entry) => !this.slots.has(entry)).sort((a, b) => placeOf(a) - placeOf(b));
    for (const entry of added) this.slots.set(entry, this.free(placeOf(entry)));
  }

  // By slot; what is not drawn leaves a name that no entry has.
  labels() {
    const names = Array.from({ length: Math.max(0, ...this.slots.values()) + 1 }, (_, slot) => ` ${slot}`);
    for (const [entry, slot] of this.slots) names[slot] = entry;
    return names;
  }

  free(place) {
    const taken = new Set(this.slots.values());
    const slotAfter = (steps) => SERIES.length * Math.floor(steps / SERIES.length) + ((place + steps) % SERIES.length);
    let steps = 0;
    while (taken.has(slotAfter(steps))) steps += 1;
    return slotAfter(steps);
  }
}

const colours = new Colours();

const FONT = "system-ui, sans-serif";
const THEME = {
  background: "transparent",
  font: FONT,
  view: { stroke: null },
  axis: {
    labelColor: "var(--muted)",
    titleColor: "var(--muted)",
    gridColor: "var(--line)",
    domainColor: "var(--edge)",
    tickColor: "var(--edge)",
    labelFontSize: 12,
    titleFontSize: 12,
    titleFontWeight: "normal",
  },
  rule: { color: "var(--muted)" },
  line: { color: "var(--muted)" }, // the chance level; entries have colours of their own
  text: { color: "var(--muted)" },
  point: { stroke: "var(--ground)" },
  legend: { disable: true }, // the ticks in the table, or the lists above a chart, are the legend
};

// The libraries stand last in the page, so that tables are there before them.
const librariesReady = new Promise((resolve) => {
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", resolve);
  else resolve();
});

const tooltip = document.getElementById("tooltip");

const hideTooltip = () => {
  tooltip.hidden = true;
};

const showTooltip = (event, lines) => {
  const rows = lines.map(([name, value, tint]) => {
    const dot = tint ? element("i", { class: "dot" }) : null;
    if (dot) dot.style.background = tint;
    return element("div", {}, element("dt", {}, dot, name), element("dd", {}, value));
  });
  tooltip.replaceChildren(element("dl", {}, rows));
  tooltip.hidden = false;
  const { width, height } = tooltip.getBoundingClientRect();
  const left = Math.min(event.clientX + 14, document.documentElement.clientWidth - width - 8);
  const above = event.clientY + height + 18 > window.innerHeight;
  tooltip.style.left = `${Math.max(8, left)}px`;
  tooltip.style.top = `${above ? event.clientY - height - 10 : event.clientY + 14}px`;
};

const vegaTooltip = (handler, event, item, value) => {
  if (value === null || value === undefined || value === "") hideTooltip();
  else showTooltip(event, typeof value === "object" ? Object.entries(value).map(([k, v]) => [k, String(v)]) : [["", String(value)]]);
};

// Views of Vega that are on the page, to be ended when it shows something else.
const live = new Map();

const endViews = () => {
  for (const end of live.values()) end();
  live.clear();
  asked = 0;
  hideTooltip();
};

const cellsOf = (board, rows) =>
  rows.flatMap((row) =>
    row.cells
      .filter((cell) => cell.kind === "length")
      .map(({ length, mean, low, high, n }) => {
        const chance = chanceOf(board, "length", length);
        return { entry: row.entry, label: row.entry, length, mean, low, high, n, chance };
      }),
  );

const chanceCurve = (board) =>
  allLengths(board)
    .map((length) => ({ length, mean: chanceOf(board, "length", length) }))
    .filter(({ mean }) => mean !== null);

// An entry's look follows from its slot, which is its place among the labels: the specification has a shape and a dash for each
// slot, and the style sheet a colour.
const styled = (node, labels) => {
  if (Array.isArray(node)) return node.map((item) => styled(item, labels));
  if (node === null || typeof node !== "object") return node;
  const copy = {};
  for (const [key, value] of Object.entries(node)) {
    copy[key] = value?.field === "label" && value.scale ? { ...value, scale: scaleOf(key, value.scale, labels) } : styled(value, labels);
  }
  return copy;
};

const scaleOf = (channel, { domainRaw, ...scale }, labels) => ({
  ...scale,
  domain: labels,
  range: channel === "color" ? SERIES : scale.range,
});

const lengthData = (pageBoard, rows) => {
  const board = boardOf(pageBoard);
  return { cells: cellsOf(board, rows), chance: chanceCurve(board), about: [pageBoard.axis] };
};

// Layers without data are left out: a scale would have no ends.
const specFor = (pageBoard, datasets, specs) => {
  const { $schema, ...spec } = styled(specsOf(specs)[`${pageBoard.metric}/${pageBoard.metric_version}`], colours.labels());
  const bands = datasets.cells.some(({ low }) => low !== null);
  const drawable = ({ data, encoding }) => datasets[data.name].length && (bands || encoding.y?.field !== "low");
  return { ...spec, layer: spec.layer.filter(drawable), datasets };
};

const OPTIONS = {
  mode: "vega-lite",
  renderer: "svg",
  actions: false,
  ast: true,
  defaultStyle: false,
  tooltip: vegaTooltip,
  config: THEME,
};

// Draw entries of a board into a figure's canvas: against length, or against training steps at one length. Only the latest of
// several calls for one canvas is seen.
const drawCurves = async (canvas, pageBoard, rows, atLength = null) => {
  const mine = {};
  canvas.latest = mine;
  canvas.setAttribute("aria-busy", "true");
  await librariesReady;
  if (canvas.latest !== mine || !canvas.isConnected) return;
  live.get(canvas)?.();
  live.delete(canvas);
  const datasets = atLength === null ? lengthData(pageBoard, rows) : stepData(pageBoard, rows, atLength);
  if (datasets.cells.length) {
    const { finalize } = await vegaEmbed(canvas, specFor(pageBoard, datasets, atLength === null ? "specs" : "step-specs"), OPTIONS);
    live.set(canvas, finalize);
    asOneImage(canvas, boardOf(pageBoard), rows, datasets, atLength);
  } else {
    const nothing = rows.length ? "No ticked entry was measured while it trained." : "Nothing is ticked; tick entries in the table to draw them.";
    canvas.removeAttribute("role");
    canvas.replaceChildren(element("p", { class: "empty" }, nothing));
  }
  canvas.setAttribute("aria-busy", "false");
};

// Vega would have a screen reader go through every point; the numbers are in the table, where they can be read in order.
const asOneImage = (canvas, board, rows, datasets, atLength) => {
  const drawnEntries = rows.map((row) => row.entry).join(", ");
  canvas.setAttribute("role", "img");
  const chance = datasets.chance.length ? " and the chance level" : "";
  const against = atLength === null ? "length" : `training steps at length ${atLength}`;
  const table = atLength === null ? "A table has the numbers." : "A table has the numbers at the last step.";
  canvas.setAttribute("aria-label", `Curves of ${board.metric.title} against ${against}: ${drawnEntries}${chance}. ${table}`);
  canvas.removeAttribute("aria-roledescription");
  canvas.querySelector("svg").setAttribute("aria-hidden", "true");
};

// Draw one chart after another: those that a first screen can have at once, before the page counts as loaded, so that a print has
// them; the others, as of a comparison on every board, when the browser has nothing else to do.
const AT_ONCE = 8;
const whenIdle = window.requestIdleCallback ?? ((next) => setTimeout(next, 50)); // Safari has none
let turn = Promise.resolve();
let asked = 0;

const drawInTurn = (canvas, pageBoard, rows) => {
  asked += 1;
  const waits = asked > AT_ONCE;
  turn = turn.then(async () => {
    if (waits) await new Promise((next) => whenIdle(next));
    await drawCurves(canvas, pageBoard, rows);
  });
};

const legend = (board, names) =>
  element(
    "ul",
    { class: "legend" },
    names.map((name) => {
      const dot = element("i", { class: "dot" });
      dot.style.background = colours.of(name);
      return element("li", {}, dot, linkTo(name));
    }),
    names.length && chanceCurve(board).length ? element("li", { class: "chance" }, element("i", { class: "dash" }), "chance") : null,
  );

// Small line charts: of a training, one line a seed; of what is inside models, one line a layer.
const SMALL = { width: 280, height: 110, left: 46, right: 10, top: 8, bottom: 20 };

const scaled = (values, low, high, logarithmic) => {
  const place = logarithmic ? Math.log10 : (value) => value;
  const known = values.filter((value) => value !== null && (!logarithmic || value > 0));
  const [least, most] = [Math.min(...known), Math.max(...known)];
  const span = place(most) - place(least) || 1;
  return { least, most, at: (value) => low + ((place(value) - place(least)) / span) * (high - low) };
};

const short = (value) => {
  if (value === null) return "not finite";
  const small = value !== 0 && Math.abs(value) < 0.001;
  return small ? value.toExponential(1) : String(Number(value.toPrecision(3)));
};

const path = (steps, values, x, y, logarithmic) => {
  let pen = "M";
  return steps
    .map((step, at) => {
      const value = values[at];
      if (value === null || (logarithmic && value <= 0)) {
        pen = "M";
        return "";
      }
      const piece = `${pen}${x.at(step).toFixed(1)} ${y.at(value).toFixed(1)}`;
      pen = "L";
      return piece;
    })
    .join("");
};

// One line a series, which is {name, slot, at, values, end}: with an `end`, the line ends there in a cross. `across` says what stands
// below: its name, the places where it always starts, and whether it is logarithmic.
const smallChart = (series, title, across, logarithmic) => {
  const values = series.flatMap((line) => line.values);
  if (!values.some((value) => value !== null)) return element("p", { class: "empty" }, `${title}: nothing was finite.`);
  const { width, height, left, right, top, bottom } = SMALL;
  const x = scaled([...across.start, ...series.flatMap((line) => line.at)], left, width - right, across.logarithmic);
  const y = scaled(values, height - bottom, top, logarithmic);
  const label = (text, at) => drawn("text", at, text);
  const marks = series.flatMap((line) => {
    const curve = drawn("path", { class: "curve", d: path(line.at, line.values, x, y, logarithmic) });
    curve.style.stroke = colour(line.slot);
    return [curve, line.end === null ? null : cross(line, x, y, logarithmic)];
  });
  const chart = drawn(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, class: "small", role: "img", "aria-label": describe(series, title, y, across) },
    drawn("path", { class: "frame", d: `M${left} ${top}V${height - bottom}H${width - right}` }),
    label(short(y.most), { x: left - 5, y: top + 8, "text-anchor": "end" }),
    label(short(y.least), { x: left - 5, y: height - bottom, "text-anchor": "end" }),
    label(String(x.least), { x: left, y: height - 5, "text-anchor": "middle" }),
    label(`${across.name} ${x.most}`, { x: width - right, y: height - 5, "text-anchor": "end" }),
    marks,
  );
  readOut(chart, series, x, across);
  return element("figure", { class: "training" }, element("figcaption", {}, title), chart);
};

const STEPS = { name: "step", start: [0], logarithmic: false };
const LENGTHS = { name: "length", start: [], logarithmic: true };

const describe = (series, title, y, across) =>
  `${title} against ${across.name}, ${plural(series.length, "line")}, between ${short(y.least)} and ${short(y.most)}` +
  series
    .filter((line) => line.end !== null)
    .map((line) => `; ${line.name} diverged at ${across.name} ${line.end}`)
    .join("");

const cross = (line, x, y, logarithmic) => {
  const usable = (value) => value !== null && (!logarithmic || value > 0);
  const last = line.values.findLastIndex(usable);
  const mark = `translate(${x.at(Math.min(line.end, x.most))} ${last < 0 ? SMALL.top : y.at(line.values[last])})`;
  return drawn("path", { class: "cross", d: "M-4-4L4 4M-4 4L4-4", transform: mark });
};

// The values of all lines at the place nearest to the pointer.
const readOut = (chart, series, x, across) => {
  const ruler = drawn("path", { class: "ruler" });
  chart.append(ruler);
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * SMALL.width;
    const places = distinct(series.flatMap((line) => line.at));
    const nearby = places.reduce((best, other) => (Math.abs(x.at(other) - at) < Math.abs(x.at(best) - at) ? other : best));
    ruler.setAttribute("d", `M${x.at(nearby)} ${SMALL.top}V${SMALL.height - SMALL.bottom}`);
    const lines = series.map((line) => {
      const place = line.at.indexOf(nearby);
      return [line.name, place < 0 ? MISSING : short(line.values[place]), colour(line.slot)];
    });
    showTooltip(event, [[across.name, String(nearby)], ...lines]);
  });
  chart.addEventListener("pointerleave", () => {
    ruler.setAttribute("d", "");
    hideTooltip();
  });
};
