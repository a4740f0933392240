/* Rows of a long list, fetched a window at a time as they come into sight. */

const PAGE = 100;

export class Windowed {
  /** `fetch(offset, limit)` gives { rows, total }; `changed()` is called when rows have come. */
  constructor(fetch, changed) {
    this.fetch = fetch;
    this.changed = changed;
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

  #place(offset, { rows, total }) {
    this.total = total;
    this.rows.length = Math.min(this.rows.length, total);
    rows.forEach((row, index) => {
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

  /** Puts new figures into the rows that are here. */
  merge(changed, id) {
    const known = new Map(changed.map((row) => [id(row), row]));
    this.rows.forEach((row, index) => {
      const next = row && known.get(id(row));
      if (next) this.rows[index] = next;
    });
  }
}
