/* Waiting before something is done. */

/** Does it `ms` after the last call. */
export function later(ms, action) {
  let timer = null;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...given), ms);
  };
}
