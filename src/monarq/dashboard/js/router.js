/* Which page, from the part of the address behind "#". Everything that can be linked to is there:
   the page, the names in it, and its filters. */

/** "#/queues/a%2Fb?sort=lag" → { parts: ["queues", "a/b"], query: { sort: "lag" } } */
export function read(hash = location.hash) {
  const [path, search = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return {
    parts: path.split("/").filter(Boolean).map(decoded),
    query: Object.fromEntries(new URLSearchParams(search)),
  };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The address of a page: link(["queues", name], { tab: "groups" }). */
export function link(parts, query) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== null && value !== undefined && value !== "") search.set(name, value);
  }
  const text = search.toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export function go(parts, query) {
  location.hash = link(parts, query);
}

/** Changes the filters of the page that is shown without a step in the history. */
export function amend(query) {
  const now = read();
  history.replaceState(null, "", link(now.parts, { ...now.query, ...query }));
}
