/* The link that `monarq serve` prints, by which its user may run commands from the page. It holds a
   code, which is exchanged for a cookie; then the code leaves the address, so that no bookmark or
   history keeps it. */

import { ApiError, post } from "./api.js";
import { notice } from "./dialog.js";
import { link } from "./router.js";

const LINK = /^#local=([\w-]+)$/;

export const isEntering = () => LINK.test(location.hash);

/** The session that the link begins, and the address of `section` in its place; null without. */
export async function enterByLink(section) {
  const code = location.hash.match(LINK)?.[1];
  if (!code) return null;
  let session = null;
  try {
    session = await post("session", { token: code });
  } catch (error) {
    if (!(error instanceof ApiError) || error.unreachable) throw error;
    notice(error.message, { bad: true });
  }
  history.replaceState(null, "", link([section]));
  return session;
}
