// Before anything is drawn: the theme chosen here last time, else the system's.
(() => {
  try {
    const chosen = localStorage.getItem("penstock-theme");
    if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
  } catch {
    // Storage may be forbidden; the system's theme is as good.
  }
})();
