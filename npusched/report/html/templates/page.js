"use strict";
(() => {
  const root = document.documentElement;
  const $ = (query, inside = document) => inside.querySelector(query);
  const all = (query, inside = document) => [...inside.querySelectorAll(query)];
  root.classList.add("js");

  // Theme: what the system has until somebody chooses; the choice stays with the page.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const themeButton = $("#theme");
  const isDark = () => (root.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
  const nameTheme = () => { themeButton.textContent = isDark() ? "Light" : "Dark"; };
  try {
    const kept = localStorage.getItem("npusched-theme");
    if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  } catch { /* storage is off: nothing is kept */ }
  themeButton.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("npusched-theme", root.dataset.theme); } catch { /* as above */ }
    nameTheme();
  });
  dark.addEventListener("change", nameTheme);
  nameTheme();

  // What a mark says: on hover, and with the arrow keys in a focused figure.
  const tip = $("#tip");
  const say = $("#say");
  const textOf = (mark) => {
    const title = $("title", mark);
    if (title) {
      mark.tipText = title.textContent;
      title.remove();
    }
    return mark.tipText;
  };
  const place = (x, y) => {
    const box = tip.getBoundingClientRect();
    const left = Math.min(x + 14, innerWidth - box.width - 6);
    const top = y + 18 + box.height > innerHeight ? y - box.height - 12 : y + 18;
    tip.style.left = `${Math.max(left, 6)}px`;
    tip.style.top = `${Math.max(top, 6)}px`;
  };
  const show = (mark, x, y) => {
    tip.textContent = textOf(mark);
    tip.hidden = false;
    place(x, y);
  };
  const hide = () => { tip.hidden = true; };
  const markAt = (event) => event.target.closest && event.target.closest(".mm > *");
  for (const kind of ["pointermove", "pointerdown"]) {
    document.addEventListener(kind, (event) => {
      const mark = markAt(event);
      if (mark) show(mark, event.clientX, event.clientY);
      else hide();
    });
  }
  document.addEventListener("scroll", hide, true);
  for (const figure of all(".fig[tabindex]")) {
    const marks = all(".mm > *", figure);
    let at = -1;
    const go = (to) => {
      if (at >= 0) marks[at].classList.remove("on");
      at = Math.max(0, Math.min(marks.length - 1, to));
      const mark = marks[at];
      mark.classList.add("on");
      const box = mark.getBoundingClientRect();
      show(mark, box.left + box.width / 2, box.top + box.height / 2);
      say.textContent = `${at + 1} of ${marks.length}: ${mark.tipText}`;
    };
    figure.addEventListener("keydown", (event) => {
      const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
      if (!marks.length) return;
      if (event.key in steps) go(at + steps[event.key]);
      else if (event.key === "Home") go(0);
      else if (event.key === "End") go(marks.length - 1);
      else if (event.key === "Escape") hide();
      else return;
      event.preventDefault();
    });
    figure.addEventListener("blur", () => {
      if (at >= 0) marks[at].classList.remove("on");
      hide();
    });
  }

  // Tables: a click on a heading sorts, the next one the other way round.
  const valueOf = (row, column) => {
    const text = row.cells[column].textContent.trim();
    const number = parseFloat(text.replace(/[\s#]/g, ""));
    return { text, number: Number.isNaN(number) ? null : number };
  };
  const order = (a, b) => {
    if (a.number !== null && b.number !== null) return a.number - b.number;
    if (a.number !== null || b.number !== null) return a.number === null ? 1 : -1;
    return a.text.localeCompare(b.text, "en", { numeric: true });
  };
  for (const button of all("th button")) {
    button.addEventListener("click", () => {
      const head = button.closest("th");
      const table = head.closest("table");
      const isNumber = head.classList.contains("n");
      const before = head.getAttribute("aria-sort");
      const next = before ? (before === "ascending" ? "descending" : "ascending")
        : (isNumber && head.cellIndex ? "descending" : "ascending");
      for (const other of all("th[aria-sort]", table)) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", next);
      const sign = next === "ascending" ? 1 : -1;
      const body = table.tBodies[0];
      const rows = [...body.rows].map((row, k) => ({ row, k, value: valueOf(row, head.cellIndex) }));
      rows.sort((a, b) => sign * order(a.value, b.value) || a.k - b.k);
      body.append(...rows.map((each) => each.row));
    });
  }

  // The filter of the op table.
  const table = $("#op-table");
  if (table) {
    const words = $("#op-filter");
    const placement = $("#op-placement");
    const bound = $("#op-bound");
    const shown = $("#op-shown");
    const rows = [...table.tBodies[0].rows];
    const haystack = rows.map((row) => {
      const named = all("[title]", row).map((each) => each.title).join(" ");
      return `${row.textContent} ${named}`.toLowerCase();
    });
    const boundAt = Number(table.dataset.bound);
    const filter = () => {
      const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
      let count = 0;
      rows.forEach((row, k) => {
        const isShown = wanted.every((word) => haystack[k].includes(word))
          && (!placement.value || row.classList.contains(placement.value))
          && (!bound.value || row.cells[boundAt].textContent.trim() === bound.value);
        row.hidden = !isShown;
        count += isShown;
      });
      shown.textContent = `${count} of ${rows.length} kernels`;
    };
    for (const each of [words, placement, bound]) each.addEventListener("input", filter);
    filter();
  }

  // The exact figures: as they stand in the page, or unpacked.
  $("#save").addEventListener("click", async () => {
    const text = $("#plan-json").textContent;
    const form = JSON.parse(text);
    let blob = new Blob([text], { type: "application/json" });
    if (form.encoding === "gzip+base64") {
      const bytes = Uint8Array.from(atob(form.data), (c) => c.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      blob = new Blob([await new Response(stream).arrayBuffer()], { type: "application/json" });
    }
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = "plan.json";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });

  // Where the reader is, in the list of sections.
  const links = new Map(all("nav a").map((link) => [link.hash.slice(1), link]));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const [id, link] of links) {
        link.classList.toggle("here", id === entry.target.id);
        if (id === entry.target.id) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      }
    }
  }, { rootMargin: "-10% 0px -75% 0px" });
  for (const id of links.keys()) seen.observe(document.getElementById(id));

  // On paper nothing is folded away.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = all("details:not([open])");
    for (const each of folded) each.open = true;
  });
  addEventListener("afterprint", () => {
    for (const each of folded) each.open = false;
  });
})();
