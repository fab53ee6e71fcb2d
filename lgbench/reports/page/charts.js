// Charts, drawn as SVG with colours of the style sheet, so that light, dark and print need no second drawing.

const SERIES = Array.from({ length: 8 }, (_, slot) => `var(--series-${slot + 1})`);
const colour = (slot) => SERIES[slot % SERIES.length];
// Shapes and dashes as in plots (marks.py): the ninth entry has the colour and the shape of the first, and another dash.
const SHAPES = [
  "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0",
  "M-3.3-3.3H3.3V3.3H-3.3Z",
  "M0-4L4 3.2H-4Z",
  "M0-4.6L3.4 0L0 4.6L-3.4 0Z",
  "M-4-1.4H-1.4V-4H1.4V-1.4H4V1.4H1.4V4H-1.4V1.4H-4Z",
  "M0 4L4-3.2H-4Z",
  "M-4-2.4L-2.4-4 0-1.6 2.4-4 4-2.4 1.6 0 4 2.4 2.4 4 0 1.6-2.4 4-4 2.4-1.6 0Z",
  "M4 0L-3.2 4V-4Z",
];
const DASHES = [null, "6 3", "2 2", "8 3 2 3", "4 2"];

// An entry has the colour of its place among all entries, on every view and in plots (slots in marks.py). Where two meet in a
// colour, the later one takes the next that is free. In one view an entry keeps its colour for as long as it is drawn.
class Colours {
  slots = new Map();

  forget() {
    this.slots.clear();
  }

  slot(entry) {
    return this.slots.get(entry) ?? 0;
  }

  of(entry) {
    return colour(this.slot(entry));
  }

  keep(drawnEntries) {
    for (const entry of [...this.slots.keys()]) if (!drawnEntries.includes(entry)) this.slots.delete(entry);
    const added = drawnEntries.filter((entry) => !this.slots.has(entry)).sort((a, b) => placeOf(a) - placeOf(b));
    for (const entry of added) this.slots.set(entry, this.free(placeOf(entry)));
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

const dashOf = (slot) => DASHES[Math.floor(slot / SERIES.length) % DASHES.length];

// A piece of a curve with its point, as a legend shows it.
const sample = (slot) => {
  const line = drawn("path", { d: "M0 6H24", "stroke-dasharray": dashOf(slot), class: "line" });
  const found = drawn("svg", { viewBox: "0 0 24 12", class: "sample", "aria-hidden": "true" }, line, drawn("path", { d: SHAPES[slot % SHAPES.length], transform: "translate(12 6)", class: "point" }));
  found.style.color = colour(slot);
  return found;
};

const legend = (names, withContextFree = false, nameOf = linkTo) =>
  element(
    "ul",
    { class: "legend" },
    names.map((name) => element("li", {}, sample(colours.slot(name)), nameOf(name))),
    names.length && withContextFree ? element("li", { class: "context-free" }, element("i", { class: "dash" }), "context-free baseline") : null,
  );

// A legend of names, whose places are the slots of their colours.
const slotKey = (names) =>
  element("ul", { class: "legend" }, names.map((name, slot) => element("li", {}, sample(slot), name)));

const scaled = (values, low, high, logarithmic) => {
  const place = logarithmic ? Math.log10 : (value) => value;
  const usable = values.filter((value) => value !== null && (!logarithmic || value > 0));
  const [least, most] = [Math.min(...usable), Math.max(...usable)];
  const span = place(most) - place(least) || 1;
  return { least, most, at: (value) => low + ((place(value) - place(least)) / span) * (high - low) };
};

const short = (value) => {
  if (value === null) return "not finite";
  const small = value !== 0 && Math.abs(value) < 0.001;
  return small ? value.toExponential(1) : String(Number(value.toPrecision(3)));
};

// Multiples of 1, 2 or 5 between two values.
const niceTicks = (low, high, count) => {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((each) => each * power >= rough * 0.999);
  const [first, last] = [Math.ceil(low / step - 1e-9), Math.floor(high / step + 1e-9)];
  return Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
};

// A line through values, interrupted where one is missing.
const path = (places, values, x, y, logarithmic = false) => {
  let pen = "M";
  return places
    .map((place, at) => {
      const value = values[at];
      if (value === null || (logarithmic && value <= 0)) {
        pen = "M";
        return "";
      }
      const piece = `${pen}${x.at(place).toFixed(1)} ${y.at(value).toFixed(1)}`;
      pen = "L";
      return piece;
    })
    .join("");
};

// Steps of a training as 976, 16k, 1M.
const compact = (value) =>
  value < 1e4 ? String(value) : value < 1e6 ? `${Number((value / 1e3).toPrecision(3))}k` : `${Number((value / 1e6).toPrecision(3))}M`;

// Curves in the width of their canvas. `series` are {entry, points}, points are {at, mean, low, high, n, contextFree}; `contextFree` are
// {at, mean}; `axis` is {name, ticks, said, logarithmic, trained}, where `said` writes a tick, and a training length of 0 is none.
const SIZE = { height: 320, left: 56, right: 12, top: 6, bottom: 42, room: 18 };

const drawCurves = (chart) => {
  const canvas = element("div", { class: "canvas", role: "img", "aria-label": chart.label });
  let width = 0;
  new ResizeObserver(() => {
    if (!canvas.clientWidth || canvas.clientWidth === width) return;
    width = canvas.clientWidth;
    canvas.replaceChildren(curvesOf(chart, width));
  }).observe(canvas);
  return canvas;
};

const curvesOf = ({ metric, axis, series, contextFree }, width) => {
  const points = series.flatMap((line) => line.points.map((point) => ({ ...point, entry: line.entry })));
  const { height, left, right, top, bottom, room } = SIZE;
  const shown = [metric.threshold, metric.landmark, perfectOf(metric)].filter((value) => value !== null);
  const values = [...points, ...contextFree].flatMap(({ mean, low, high }) => [mean, low ?? mean, high ?? mean]);
  const x = scaled([...axis.ticks, ...points.map(({ at }) => at)], left + 6, width - right - 6, axis.logarithmic);
  const y = scaled([...values, ...shown], height - bottom - room, top + room, false);
  const groups = series.map((line) => curve(line, x, y));
  const level = contextFree.length ? drawn("path", { class: "context-free", d: path(contextFree.map(({ at }) => at), contextFree.map(({ mean }) => mean), x, y) }) : null;
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}` }, axes(metric, axis, x, y, width), level, groups);
  followPointer(svg, { metric, axis, points, groups, x, y, width });
  return svg;
};

const axes = (metric, axis, x, y, width) => {
  const { height, left, right, top, bottom, room } = SIZE;
  const [floor, end] = [height - bottom, width - right];
  const text = (content, at) => drawn("text", at, content);
  const possible = (value) => (metric.low === null || value >= metric.low) && (metric.high === null || value <= metric.high);
  const rows = niceTicks(y.least, y.most, 5).filter(possible).flatMap((value) => [
    drawn("path", { class: "rule", d: `M${left} ${y.at(value)}H${end}` }),
    text(short(value), { x: left - 6, y: y.at(value) + 4, "text-anchor": "end" }),
  ]);
  let free = Infinity; // labels from the right to the left, where they do not overlap
  const columns = axis.ticks.toReversed().flatMap((tick) => {
    const [place, half] = [x.at(tick), 4 * axis.said(tick).length];
    const label = place + half < free ? text(axis.said(tick), { x: place, y: floor + 16, "text-anchor": "middle" }) : null;
    if (label) free = place - half;
    return [drawn("path", { class: "rule", d: `M${place} ${top}V${floor}` }), label].filter(Boolean);
  });
  // Most values lie on one side of the landmark; its name stands on the other side, and what was trained opposite.
  const best = metric.landmark === perfectOf(metric);
  const up = metric.landmark === null || best === metric.lower_is_better ? 1 : -1;
  const trained = axis.trained
    ? [
        drawn("path", { class: "trained", d: `M${left} ${top}H${x.at(axis.trained)}V${floor}H${left}Z` }),
        text(`trained to ${axis.trained}`, { x: left + 6, y: up > 0 ? top + room / 2 + 4 : floor - room / 2 + 4 }),
      ]
    : [];
  const side = best === (axis.name === "length") ? { x: end - 4, "text-anchor": "end" } : { x: left + 4 };
  const landmark =
    metric.landmark === null
      ? []
      : [
          drawn("path", { class: "landmark", d: `M${left} ${y.at(metric.landmark)}H${end}` }),
          text(metric.landmark_name, { ...side, y: y.at(metric.landmark) + (up * room) / 2 + 4 }),
        ];
  return [
    trained,
    rows,
    columns,
    drawn("path", { class: "frame", d: `M${left} ${top}V${floor}H${end}` }),
    landmark,
    text(axis.name, { x: (left + end) / 2, y: height - 6, "text-anchor": "middle" }),
    text(metric.title, { transform: `translate(12 ${(top + floor) / 2}) rotate(-90)`, "text-anchor": "middle" }),
  ].flat();
};

const curve = ({ entry, points }, x, y) => {
  const slot = colours.slot(entry);
  const at = points.map((point) => point.at);
  const ends = points.filter(({ low }) => low !== null);
  const back = ends.toReversed();
  const low = path(ends.map((point) => point.at), ends.map((point) => point.low), x, y);
  const high = path(back.map((point) => point.at), back.map((point) => point.high), x, y);
  const group = drawn(
    "g",
    { class: "series", "data-entry": entry },
    ends.length > 1 ? drawn("path", { class: "band", d: `${low}${high.replace("M", "L")}Z` }) : null,
    drawn("path", { class: "line", d: path(at, points.map(({ mean }) => mean), x, y), "stroke-dasharray": dashOf(slot) }),
    points.map((point) =>
      drawn("path", { class: "point", d: SHAPES[slot % SHAPES.length], transform: `translate(${x.at(point.at)} ${y.at(point.mean)})` }),
    ),
  );
  group.style.color = colour(slot);
  return group;
};

// The point nearest to the pointer tells its numbers, and its curve stands out.
const followPointer = (svg, { metric, axis, points, groups, x, y, width }) => {
  const leave = () => {
    for (const group of groups) group.classList.remove("faded");
    hideTooltip();
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const scale = width / box.width;
    const [px, py] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    const far = (point) => Math.hypot(x.at(point.at) - px, y.at(point.mean) - py);
    const near = points.reduce((best, point) => (best && far(best) <= far(point) ? best : point), null);
    if (!near) return;
    for (const group of groups) group.classList.toggle("faded", group.dataset.entry !== near.entry);
    const lines = [["entry", near.entry, colours.of(near.entry)], [axis.name, axis.said(near.at)], [metric.label, digits(near.mean)]];
    if (near.low !== null) lines.push(["95 % interval", interval(near)]);
    if (near.contextFree !== null) lines.push(["context-free baseline", digits(near.contextFree)]);
    if (near.n) lines.push(["seeds", String(near.n)]);
    showTooltip(atPointer(event), pairs(lines));
  });
  svg.addEventListener("pointerleave", leave);
};

const AGAINST = "A table has the numbers.";

// Entries of a board against length, or against training steps at one length.
const boardCurves = (pageBoard, rows, atLength = null) => {
  const board = boardOf(pageBoard);
  const chart = atLength === null ? againstLength(pageBoard, board, rows) : againstSteps(pageBoard, rows, atLength);
  const what = atLength === null ? "length" : `training steps at length ${atLength}`;
  const level = chart.contextFree.length ? " and the context-free baseline" : "";
  const label = `Curves of ${board.metric.title} against ${what}: ${rows.map(({ entry }) => entry).join(", ")}${level}. ${AGAINST}`;
  return { metric: board.metric, label, ...chart };
};

const againstLength = ({ axis }, board, rows) => ({
  axis: { name: "length", ticks: axis.lengths, said: String, logarithmic: true, trained: axis.train_length },
  contextFree: contextFreeCurve(board).map(({ length, mean }) => ({ at: length, mean })),
  series: rows.map(({ entry, cells }) => ({
    entry,
    points: cells
      .filter(({ kind }) => kind === "length")
      .map(({ length, ...cell }) => ({ at: length, ...cell, contextFree: contextFreeOf(board, "length", length) })),
  })),
});

// A point is a list of step, mean, low, high and n, as the page brings it.
const againstSteps = (pageBoard, rows, length) => {
  const { axis, context_free: contextFree, entries: curves } = stepsOf(pageBoard)[length];
  const measured = rows.filter(({ entry }) => Object.hasOwn(curves, entry));
  return {
    axis: { name: "training steps", ticks: axis.lengths, said: compact, logarithmic: true, trained: 0 },
    contextFree: contextFree === null ? [] : [axis.shortest, axis.longest].map((at) => ({ at, mean: contextFree })),
    series: measured.map(({ entry }) => ({
      entry,
      points: curves[entry].map(([at, mean, low, high, n]) => ({ at, mean, low, high, n, contextFree })),
    })),
  };
};

const contextFreeCurve = (board) =>
  allLengths(board)
    .map((length) => ({ length, mean: contextFreeOf(board, "length", length) }))
    .filter(({ mean }) => mean !== null);

// Small line charts: of a training, one line a seed; of what is inside models, one line a layer.
const SMALL = { width: 280, height: 110, left: 46, right: 10, top: 8, bottom: 20 };

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
    showTooltip(atPointer(event), pairs([[across.name, String(nearby)], ...lines]));
  });
  chart.addEventListener("pointerleave", () => {
    ruler.setAttribute("d", "");
    hideTooltip();
  });
};
