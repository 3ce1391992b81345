"use strict";
(() => {
  const root = document.documentElement;
  addEventListener("error", (event) => {
    root.dataset.errors = (root.dataset.errors ? root.dataset.errors + "\n" : "") + event.message;
  });
  addEventListener("securitypolicyviolation", (event) => { root.dataset.errors = `blocked: ${event.violatedDirective}`; });

  const runs = JSON.parse(document.getElementById("data").textContent);
  const rows = [...document.querySelectorAll(".runs tbody tr")];
  const search = document.getElementById("search");
  const count = document.getElementById("count");
  const said = rows.map((row) => row.textContent.toLowerCase());

  // Every word has to be there, in any order; a run that is chosen stays in sight.
  function find() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, index) => {
      const fits = words.every((word) => said[index].includes(word));
      row.hidden = !fits && !row.classList.contains("chosen");
      shown += !row.hidden;
    });
    count.textContent = words.length ? `${shown} of ${rows.length}` : "";
  }

  function cell(kind, text, numeric) {
    const made = document.createElement(kind);
    made.textContent = text;
    if (numeric) made.className = "n";
    return made;
  }

  function figure(value) {
    return value === undefined ? "–" : value.toLocaleString("en", { maximumSignificantDigits: 4 });
  }

  function sideBySide() {
    const chosen = rows.filter((row) => row.querySelector("input").checked).reverse();  // the oldest first
    rows.forEach((row) => row.classList.toggle("chosen", chosen.includes(row)));
    document.getElementById("sideBySide").hidden = chosen.length < 2;
    if (chosen.length < 2) return find();
    const their = chosen.map((row) => runs[row.dataset.index]);
    const table = document.getElementById("figures");
    const head = document.createElement("tr");
    head.append(cell("th", "ms (median)"));
    chosen.forEach((row) => head.append(cell("th", row.querySelector(".name").innerText.replace("\n", ", "), true)));
    if (their.length === 2) head.append(cell("th", "second / first", true));
    const body = [...new Set(their.flatMap((run) => Object.keys(run.figures)))].map((name) => {
      const line = document.createElement("tr");
      const values = their.map((run) => run.figures[name]);
      const label = cell("th", name.split(" / ").at(-1));
      label.style.setProperty("--depth", name.split(" / ").length - 1);
      line.append(label, ...values.map((value) => cell("td", figure(value), true)));
      if (values.length === 2) {
        const both = values[0] > 0 && values[1] !== undefined;
        line.append(cell("td", both ? `${(values[1] / values[0]).toPrecision(3)} ×` : "–", true));
      }
      return line;
    });
    const heads = document.createElement("thead"), lines = document.createElement("tbody");
    heads.append(head);
    lines.append(...body);
    table.replaceChildren(heads, lines);
    const machines = new Set(chosen.map((row) => row.querySelector(".machine").textContent));
    const studies = new Set(chosen.map((row) => row.querySelector("a").textContent));
    document.getElementById("apart").hidden = machines.size === 1 && studies.size === 1;
    // The verdict, with its interval, is a command's: a page that divides medians proves nothing.
    const at = their.map((run) => `${root.dataset.folder}/${run.folder}`);
    document.getElementById("command").textContent = at.length === 2
      ? `strobe diff ${at[0]} ${at[1]}` : `strobe history ${root.dataset.folder}`;
    find();
  }

  search.addEventListener("input", find);
  rows.forEach((row) => row.querySelector("input").addEventListener("change", sideBySide));
  addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== search) {
      event.preventDefault();
      search.focus();
    }
    if (event.key === "Escape" && document.activeElement === search) {
      search.value = "";
      find();
    }
  });
  sideBySide();
  root.dataset.settled = "true";
})();
