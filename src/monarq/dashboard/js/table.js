/* A table that draws only the rows in sight, so that 10 and 100,000 rows cost the same.

   Arrow keys, Home, End and the page keys go from row to row, Enter opens one. Rows that have not
   been fetched are drawn empty, and asked for by `need(first, last)`. */

import { h, fill, island } from "./dom.js";

const ROW = 36;
const SPARE = 10;

/** `columns`: [{ key, label, cell(row), num, width, sort, hide }]; `hide`: 1 goes on a phone,
    2 on narrow pages, 3 on middling ones. `rows`: an array in which some may be missing; `total`: how many there are.
    `id(row)`: stable. `href(row)`: where a row leads. `sort`: { key, order }, with `onsort(key)`. */
export function table(key, props) {
  return island("div.table", key, props, makeTable);
}

function makeTable(element) {
  let props = null;
  let active = 0;
  let awaited = false;
  const head = h("thead");
  const body = h("tbody");
  const grid = h("table", null, head, body);
  const scroll = h("div.table-scroll", { role: "group", tabindex: "0" }, grid);
  element.append(scroll);

  const total = () => props.total ?? props.rows.length;

  const draw = () => {
    const height = scroll.clientHeight || 600;
    const first = Math.max(0, Math.floor(scroll.scrollTop / ROW) - SPARE);
    const last = Math.min(total(), Math.ceil((scroll.scrollTop + height) / ROW) + SPARE);
    const rows = [];
    for (let index = first; index < last; index += 1) rows.push(line(index));
    fill(body, spacer("before", first), rows, spacer("after", total() - last));
    const wanted = awaited && body.querySelector(`[data-row="${active}"]`);
    if (wanted) {
      awaited = false;
      wanted.focus({ preventScroll: true });
    }
    if (props.need && last > first) props.need(first, last);
  };

  // One cell: a span over columns that are hidden on narrow pages would make them again.
  const spacer = (key, rows) =>
    h(
      "tr.table-space",
      { key, "aria-hidden": "true" },
      h("td", { style: { height: `${rows * ROW}px` } }),
    );

  const line = (index) => {
    const row = props.rows[index];
    if (!row) {
      return h(
        "tr.table-row.table-row-empty",
        { key: `#${index}`, "aria-rowindex": index + 2 },
        props.columns.map((column) => h("td", { class: classes(column) }, h("span.table-blank"))),
      );
    }
    const href = props.href?.(row);
    return h(
      "tr.table-row",
      {
        key: props.id(row),
        class: [href ? "table-row-link" : "", props.tone?.(row) ?? ""].join(" ").trim(),
        "aria-rowindex": index + 2,
        onclick: href ? (event) => follow(event, href) : null,
      },
      props.columns.map((column, at) =>
        h(
          "td",
          { class: classes(column) },
          at === (props.linkColumn ?? 0) && href
            ? h(
                "a.table-link",
                { href, "data-row": index, tabindex: index === active ? "0" : "-1" },
                column.cell(row),
              )
            : column.cell(row),
        ),
      ),
    );
  };

  const follow = (event, href) => {
    if (event.target.closest("a, button, input, label, summary") || getSelection().toString())
      return;
    location.hash = href;
  };

  const focusRow = (index) => {
    active = Math.max(0, Math.min(total() - 1, index));
    const top = active * ROW;
    const headHeight = head.offsetHeight;
    if (top < scroll.scrollTop) scroll.scrollTop = top;
    else if (top + ROW + headHeight > scroll.scrollTop + scroll.clientHeight) {
      scroll.scrollTop = top + ROW + headHeight - scroll.clientHeight;
    }
    // The old row may go from the page, and the new one may have to be fetched: the table holds
    // the focus until it is there.
    scroll.focus({ preventScroll: true });
    awaited = true;
    draw();
  };

  scroll.addEventListener("keydown", (event) => {
    const page = Math.max(1, Math.floor(scroll.clientHeight / ROW) - 2);
    const on = event.target.closest("[data-row]");
    if (event.target !== scroll && !on) return;
    const from = on ? Number(on.dataset.row) : active - 1;
    const to = {
      ArrowDown: from + 1,
      ArrowUp: from - 1,
      PageDown: from + page,
      PageUp: from - page,
      Home: 0,
      End: total() - 1,
    }[event.key];
    if (to === undefined || !props.href) return;
    event.preventDefault();
    focusRow(to);
  });
  scroll.addEventListener("focusout", (event) => {
    if (!scroll.contains(event.relatedTarget)) awaited = false;
  });
  scroll.addEventListener("scroll", () => requestAnimationFrame(draw), { passive: true });
  const observer = new ResizeObserver(() => props && draw());
  observer.observe(scroll);
  element.$leave = () => observer.disconnect();

  return (next) => {
    const before = props;
    props = next;
    scroll.setAttribute("aria-label", props.label);
    grid.setAttribute("aria-rowcount", total() + 1);
    grid.setAttribute("aria-label", props.label);
    if (before && before.view !== props.view) {
      scroll.scrollTop = 0;
      active = 0;
    }
    fill(head, heading(props));
    draw();
  };
}

const classes = (column) =>
  [
    column.num ? "num" : "",
    column.hide ? `hide-${column.hide}` : "",
    column.wide ? "wide" : "",
    column.kind ?? "",
  ]
    .filter(Boolean)
    .join(" ") || null;

const arrow = (order) =>
  order
    ? h("span.table-arrow", { "aria-hidden": "true" }, order === "ascending" ? "↑" : "↓")
    : null;

function heading(props) {
  return h(
    "tr",
    { "aria-rowindex": 1 },
    props.columns.map((column) => {
      const sorted = props.sort?.key === column.sort && column.sort;
      const order = sorted ? (props.sort.order === "asc" ? "ascending" : "descending") : null;
      return h(
        "th",
        {
          key: column.key,
          scope: "col",
          class: classes(column),
          "aria-sort": order,
          style: column.width ? { width: column.width } : {},
        },
        column.sort && props.onsort
          ? h(
              "button.table-sort",
              { type: "button", onclick: () => props.onsort(column.sort) },
              column.num && arrow(sorted && order),
              column.label,
              !column.num && arrow(sorted && order),
            )
          : (column.head ?? column.label),
      );
    }),
  );
}

/** Sorts rows in place of a server: the same `sort` as `table` takes. */
export function sorted(rows, sort, value = (row) => row[sort.key]) {
  const sign = sort.order === "asc" ? 1 : -1;
  return rows.toSorted((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === y) return 0;
    if (x === null || x === undefined) return 1;
    if (y === null || y === undefined) return -1;
    return (typeof x === "string" ? x.localeCompare(y) : x - y) * sign;
  });
}

/** What a click on a heading means: the other way round, or `first` for a new column. */
export function turned(sort, key, first = "desc") {
  if (sort.key !== key) return { key, order: first };
  return { key, order: sort.order === "asc" ? "desc" : "asc" };
}
