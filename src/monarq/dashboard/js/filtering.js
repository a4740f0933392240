/* Lists that are filtered and sorted by whoever looks. */

import { notice } from "./dialog.js";
import { later } from "./timing.js";

/** Once the filter has rested for a moment, notes `query()` in the address and reads anew. */
export function refiltering(ctx, query, read) {
  return later(150, async () => {
    ctx.amend(query());
    try {
      await read();
    } catch (error) {
      notice(error.message, { bad: true });
    }
    ctx.redraw();
  });
}
