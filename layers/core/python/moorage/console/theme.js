// Runs before the first paint, so that a chosen theme does not flash up as the other one.
{
  const chosen = localStorage.getItem("moorage.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
