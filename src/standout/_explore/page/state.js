// The state of the page. All of it is in the address, so that reloading or sharing the address gives the same view.

export const state = {
  left: { method: "pca", stop: 0, x: 0, y: 1, zoom: null }, // zoom: ends of x and y, if not all points are shown
  right: { method: "dpca", stop: 0, x: 0, y: 1, zoom: null },
  on: [0], // backgrounds in use
  hidden: [], // datasets that are not drawn
  colour: "",
  a: null, // selections
  b: null,
};

/** Return what the server needs to know of a view. */
export const request = (name) => {
  const { method, stop, x, y } = state[name];
  return { method, stop, x, y, on: state.on };
};

const isView = (view) => view && typeof view.method === "string" && [view.stop, view.x, view.y].every(Number.isInteger);
const isZoom = (zoom) => Array.isArray(zoom) && zoom.length === 4 && zoom.every(Number.isFinite);
const isNumbers = (list) => Array.isArray(list) && list.every(Number.isInteger);

/** Take the state from the address, as far as it is valid for this session. */
export function readAddress(session) {
  const names = session.datasets.map((_, number) => number);
  state.on = names.slice(1).map((number) => number - 1);
  state.right.method = session.method;
  state.colour = session.columns[0]?.key ?? "";
  let given = {};
  try {
    given = JSON.parse(decodeURIComponent(location.hash.slice(1)) || "{}");
  } catch {
    return; // an address that was cut
  }
  for (const name of ["left", "right"]) {
    if (!isView(given[name]) || !(given[name].method in session.methods)) continue;
    const { method, stop, x, y, zoom } = given[name];
    state[name] = { method, stop, x, y, zoom: isZoom(zoom) ? zoom : null };
  }
  if (isNumbers(given.on) && given.on.length && given.on.every((number) => names.includes(number + 1))) state.on = given.on;
  if (isNumbers(given.hidden)) state.hidden = given.hidden.filter((number) => names.includes(number));
  if (typeof given.colour === "string") state.colour = given.colour;
  for (const name of ["a", "b"]) if (given[name] && typeof given[name] === "object") state[name] = given[name];
}

/** Write the state to the address, without an entry in the history. */
export function writeAddress() {
  history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify(state))}`);
}
