/* Sets the theme before anything is drawn. A plain script on purpose: modules come later. */
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("monarq-theme");
  } catch {
    // Storage may be forbidden; the system's theme is used then.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
