"use strict";
const folds = document.querySelectorAll("details");
if (folds.length > 0) {
  const openedAtFirst = Array.from(folds, (fold) => fold.open);
  const bar = document.createElement("p");
  bar.className = "controls";
  const add = (label, isOpen) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.addEventListener("click", () => folds.forEach((fold, index) => { fold.open = isOpen(index); }));
    bar.append(button);
  };
  add("Expand all", () => true);
  add("Collapse all", () => false);
  add("Reset", (index) => openedAtFirst[index]);
  document.querySelector("main h2").after(bar);
}
