/* Rows of a long list, fetched a window at a time as they come into sight. */

const PAGE = 100;

export class Windowed {
  /** `fetch(offset, limit)` gives { rows, total, at }; `changed()` is called when rows have come;
      `id(row)` is for lists that are kept current by events. */
  constructor(fetch, changed, id = null) {
    this.fetch = fetch;
    this.changed = changed;
    this.id = id;
    this.fresh = new Map();
    this.rows = [];
    this.total = null;
    this.version = 0;
    this.asked = new Set();
    this.seen = [0, PAGE];
    this.need = this.need.bind(this);
  }

  /** Another filter or order: everything anew, from the top. */
  async reset() {
    this.version += 1;
    this.seen = [0, PAGE];
    await this.reload(true);
  }

  /** What is in sight anew. */
  async reload(all = false) {
    const version = this.version;
    const first = Math.floor(this.seen[0] / PAGE) * PAGE;
    const answer = await this.fetch(first, Math.min(1000, Math.max(PAGE, this.seen[1] - first)));
    if (version !== this.version) return;
    if (all || answer.total !== this.total) this.rows = [];
    this.asked.clear();
    this.#place(first, answer);
  }

  #place(offset, { rows, total, at }) {
    this.total = total;
    this.rows.length = Math.min(this.rows.length, total);
    this.#newest(rows, at).forEach((row, index) => {
      this.rows[offset + index] = row;
    });
  }

  need(first, last) {
    this.seen = [first, last];
    for (let page = Math.floor(first / PAGE); page * PAGE < last; page += 1) {
      if (!this.#missing(page) || this.asked.has(page)) continue;
      this.asked.add(page);
      this.#bring(page);
    }
  }

  #missing(page) {
    const end = Math.min(this.total ?? 0, (page + 1) * PAGE);
    for (let index = page * PAGE; index < end; index += 1) if (!this.rows[index]) return true;
    return false;
  }

  async #bring(page) {
    const version = this.version;
    try {
      const answer = await this.fetch(page * PAGE, PAGE);
      if (version === this.version) this.#place(page * PAGE, answer);
    } catch {
      // The row stays empty; it is asked for again when it next comes into sight.
    } finally {
      if (version === this.version) this.asked.delete(page);
    }
    this.changed();
  }

  /** Puts new figures, told at a time, into the rows that are here. */
  merge(changed, at) {
    for (const row of changed) this.fresh.set(this.id(row), { row, at });
    this.rows.forEach((row, index) => {
      if (row) this.rows[index] = this.fresh.get(this.id(row))?.row ?? row;
    });
  }

  // An answer may come after an event that is newer; what it has caught up with is forgotten.
  #newest(rows, at) {
    if (!this.id || !at) return rows;
    for (const [id, one] of this.fresh) if (one.at <= at) this.fresh.delete(id);
    return rows.map((row) => this.fresh.get(this.id(row))?.row ?? row);
  }
}
