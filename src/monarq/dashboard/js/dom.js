/* Builds elements, and turns what is on the page into what should be.

   Text only ever enters as text nodes: there is no way here to write markup from a string. Pages
   describe all of their content each time something changes; `morph` then touches only what
   differs, so that focus, selection and scroll positions stay. */

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set([
  "svg",
  "g",
  "path",
  "line",
  "rect",
  "circle",
  "text",
  "title",
  "polyline",
  "use",
  "clipPath",
]);
const PROPERTIES = new Set(["value", "checked", "disabled", "indeterminate", "selected", "open"]);

/** An element. `props`: attributes, `on…` handlers, `style` (an object), `key`, `ref`. */
export function h(tag, props, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = SVG_TAGS.has(name)
    ? document.createElementNS(SVG, name)
    : document.createElement(name || "div");
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [prop, value] of Object.entries(props ?? {})) set(element, prop, value);
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false || child === "") continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child instanceof Node ? child : String(child));
  }
}

function set(element, prop, value) {
  if (prop === "key") element.$key = String(value);
  else if (prop === "ref") value(element);
  else if (prop === "class") {
    const classes = [element.getAttribute("class"), value].filter(Boolean).join(" ");
    if (classes) element.setAttribute("class", classes);
  } else if (prop === "style") {
    // Through the CSSOM: a style attribute would be refused by the page's policy.
    element.$style = value;
    applyStyle(element, value, {});
  } else if (prop.startsWith("on")) {
    if (value) listen(element, prop.slice(2).toLowerCase(), value);
  } else if (PROPERTIES.has(prop)) {
    element.$props = { ...element.$props, [prop]: value };
    element[prop] = value ?? (prop === "value" ? "" : false);
  } else if (value === true) element.setAttribute(prop, "");
  else if (value !== false && value !== null && value !== undefined) {
    element.setAttribute(prop, String(value));
  }
}

function applyStyle(element, style, old) {
  for (const name of Object.keys(old)) {
    if (!(name in style)) element.style.removeProperty(name);
  }
  for (const [name, value] of Object.entries(style)) {
    if (old[name] !== value) element.style.setProperty(name, String(value));
  }
}

// Handlers are kept beside the element, so that a morph can exchange them.
function dispatch(event) {
  event.currentTarget.$on?.[event.type]?.(event);
}

function listen(element, type, handler) {
  if (!element.$on) element.$on = {};
  if (!(type in element.$on)) element.addEventListener(type, dispatch);
  element.$on[type] = handler;
}

/** A part that looks after its own content. `make(element)` runs once, and returns a function that
    takes new props; `$leave` of the element, if it sets one, runs when it goes. */
export function island(tag, key, props, make) {
  const element = h(tag, { key });
  element.$island = { key, props, make };
  return element;
}

function startIsland(element) {
  const { props, make } = element.$island;
  element.$update = make(element);
  element.$update(props);
}

/** Starts the islands in a tree that has just been put on the page. */
function start(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return;
  if (node.$island && !node.$update) {
    startIsland(node);
    return;
  }
  for (const child of node.children) start(child);
}

/** Ends the islands in a tree that goes. */
function end(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return;
  node.$leave?.();
  for (const child of node.children) end(child);
}

/** Makes the children of `parent` those given. */
export function fill(parent, ...children) {
  const wanted = document.createDocumentFragment();
  append(wanted, children);
  morphChildren(parent, [...wanted.childNodes]);
}

function same(old, wanted) {
  return (
    old.nodeType === wanted.nodeType &&
    old.nodeName === wanted.nodeName &&
    old.$key === wanted.$key &&
    Boolean(old.$island) === Boolean(wanted.$island)
  );
}

function morphChildren(parent, wanted) {
  const keyed = new Map();
  for (const child of parent.childNodes) if (child.$key !== undefined) keyed.set(child.$key, child);
  let cursor = parent.firstChild;
  for (const node of wanted) {
    let match = null;
    if (node.$key !== undefined) {
      const candidate = keyed.get(node.$key);
      if (candidate && same(candidate, node)) match = candidate;
    } else if (cursor && cursor.$key === undefined && same(cursor, node)) match = cursor;
    if (match) {
      if (match.$key !== undefined) keyed.delete(match.$key);
      if (match === cursor) cursor = cursor.nextSibling;
      else parent.insertBefore(match, cursor);
      morph(match, node);
    } else {
      parent.insertBefore(node, cursor);
      start(node);
    }
  }
  while (cursor) {
    const next = cursor.nextSibling;
    end(cursor);
    cursor.remove();
    cursor = next;
  }
}

function morph(old, wanted) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== wanted.data) old.data = wanted.data;
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) return;
  if (old.$island) {
    old.$island = wanted.$island;
    old.$update(wanted.$island.props);
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (name !== "style" && name !== "open" && !wanted.hasAttribute(name))
      old.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  applyStyle(old, wanted.$style ?? {}, old.$style ?? {});
  old.$style = wanted.$style;
  for (const type of Object.keys(old.$on ?? {})) if (!wanted.$on?.[type]) old.$on[type] = null;
  for (const [type, handler] of Object.entries(wanted.$on ?? {})) listen(old, type, handler);
  morphChildren(old, [...wanted.childNodes]);
  // Behind the children: the value of a select is one of its options. What somebody is typing
  // stays, unless the page says otherwise than before.
  for (const [prop, value] of Object.entries(wanted.$props ?? {})) {
    if (old.$props?.[prop] !== value || document.activeElement !== old) old[prop] = value;
  }
  old.$props = wanted.$props;
}
