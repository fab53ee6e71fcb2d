// Curves against training steps: how good entries were at one length while they trained.

const stepsOf = remembered((pageBoard) => read(`steps-${pageBoard.id}`));

// A point is a list, as the page brings it.
const stepData = (pageBoard, rows, length) => {
  const { axis, chance, entries: curves } = stepsOf(pageBoard)[length];
  const cells = rows
    .filter(({ entry }) => Object.hasOwn(curves, entry))
    .flatMap(({ entry }) => curves[entry].map(([step, mean, low, high, n]) => ({ entry, label: entry, step, mean, low, high, n, chance })));
  const ends = [axis.shortest, axis.longest].map((step) => ({ step, mean: chance }));
  return { cells, chance: chance === null ? [] : ends, about: [axis] };
};

// Where the choice of the axis stands, for boards whose models were tested while they trained. `changed` is called with a length,
// or with null for curves against length.
const acrossChoice = (pageBoard, current, changed) => {
  if (!pageBoard.steps.length) return null;
  const sideOf = (length) => (!boardOf(pageBoard).train_length ? "" : length <= boardOf(pageBoard).train_length ? " (ID)" : " (OOD)");
  const option = (value, text) => element("option", { value, selected: value === String(current ?? "") }, text);
  const choice = element(
    "select",
    { id: "across", change: (event) => changed(event.target.value === "" ? null : Number(event.target.value)) },
    option("", "length"),
    pageBoard.steps.map((length) => option(String(length), `training steps, at length ${length}${sideOf(length)}`)),
  );
  return element("div", { class: "tools" }, element("label", { for: "across" }, "Draw against"), choice);
};
