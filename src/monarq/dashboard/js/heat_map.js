/* Many partitions at a glance: a cell each, deeper where more waits. */

import { h, island } from "./dom.js";

/** `cells`: [{ value, label, detail, href }]. Deeper colour, greater value; the scale is by square
    root, so that one deep partition does not hide the others. */
export function heatMap(key, props) {
  return island("div.heat", key, props, makeHeatMap);
}

const LEVELS = 6;

function makeHeatMap(element) {
  let props = null;
  let at = null;
  let perRow = 1;
  const size = 16;
  const readout = h("div.heat-readout", { "aria-live": "polite" });
  const plot = h("div.heat-plot", { tabindex: "0", role: "img" });
  element.append(plot, readout);

  const point = (index) => {
    plot.querySelector(".heat-cursor")?.remove();
    at = index;
    if (index === null || !props.cells[index]) {
      readout.textContent = props.hint;
      return;
    }
    const cell = props.cells[index];
    readout.replaceChildren(h("b.name", { dir: "auto" }, cell.label), " ", cell.detail);
    plot.firstChild.append(
      h("rect.heat-cursor", {
        x: (index % perRow) * size + 0.5,
        y: Math.floor(index / perRow) * size + 0.5,
        width: size - 2,
        height: size - 2,
        rx: 2,
      }),
    );
  };

  const redraw = () => {
    if (!props || !plot.clientWidth) return;
    perRow = Math.max(1, Math.floor(plot.clientWidth / size));
    const most = Math.sqrt(Math.max(1, ...props.cells.map((cell) => cell.value)));
    const height = Math.ceil(props.cells.length / perRow) * size;
    plot.replaceChildren(
      h(
        "svg",
        { width: perRow * size, height, "aria-hidden": "true" },
        props.cells.map((cell, index) => {
          const level =
            cell.value > 0 ? Math.ceil((Math.sqrt(cell.value) / most) * (LEVELS - 1)) : 0;
          return h(`rect.heat-cell.heat-${level}`, {
            class: cell.mark ? `heat-${cell.mark}` : "",
            x: (index % perRow) * size,
            y: Math.floor(index / perRow) * size,
            width: size - 1,
            height: size - 1,
            rx: 2,
          });
        }),
      ),
    );
    point(at);
  };

  const under = (event) => {
    const column = Math.floor(event.offsetX / size);
    const index = Math.floor(event.offsetY / size) * perRow + column;
    return column < perRow && index < props.cells.length ? index : null;
  };
  plot.addEventListener("pointermove", (event) => point(under(event)));
  plot.addEventListener("pointerleave", () => point(null));
  plot.addEventListener("click", (event) => {
    const cell = props.cells[under(event)];
    if (cell?.href) location.hash = cell.href;
  });
  plot.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -perRow, ArrowDown: perRow };
    if (event.key === "Enter" && props.cells[at]?.href) location.hash = props.cells[at].href;
    if (!(event.key in moves) || !props.cells.length) return;
    event.preventDefault();
    const to = at === null ? 0 : at + moves[event.key];
    point(Math.max(0, Math.min(props.cells.length - 1, to)));
  });

  const observer = new ResizeObserver(redraw);
  observer.observe(plot);
  element.$leave = () => observer.disconnect();
  return (next) => {
    props = next;
    plot.setAttribute("aria-label", props.label);
    redraw();
  };
}
