
const box = document.getElementById("search"), found = document.getElementById("found");
const parts = [...document.querySelectorAll("article.card, table.runs tbody tr[id]")].map((part) => [part, part.textContent.toLowerCase()]);
const folds = [...document.querySelectorAll("details")].map((fold) => [fold, fold.open]);
box.parentElement.hidden = false;
box.addEventListener("input", () => {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  let hits = 0;
  for (const [part, text] of parts) {
    const next = part.nextElementSibling;
    part.hidden = !words.every((word) => text.includes(word));
    if (next && next.className === "why") next.hidden = part.hidden;
    if (!part.hidden && part.matches("tr")) hits += 1;
  }
  for (const [fold, open] of folds) fold.open = words.length ? true : open;
  found.textContent = words.length ? `${hits} of the listed runs match` : "";
});
