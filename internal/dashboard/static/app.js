// SPDX-License-Identifier: Apache-2.0
// What scripts add to the pages: everything works without them.
"use strict";
document.documentElement.classList.add("scripted");

document.addEventListener("click", async (e) => {
  const copy = e.target.closest("[data-copy]");
  if (copy) {
    await navigator.clipboard.writeText(copy.dataset.copy);
    copy.classList.add("copied");
    copy.setAttribute("aria-label", "Copied");
    setTimeout(() => { copy.classList.remove("copied"); copy.setAttribute("aria-label", "Copy"); }, 1500);
  }
});

// A button that is pressed twice sends its form once: what the first answer shows
// this once would never be seen.
addEventListener("submit", (e) => {
  const form = e.target;
  if (e.defaultPrevented || form.method !== "post" || e.submitter?.formTarget) return;
  if (e.timeStamp - form.sent < 2000) e.preventDefault();
  else form.sent = e.timeStamp;
});

// Times are told in UTC, and in one's own zone to who points at them.
const local = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long" });
document.addEventListener("mouseover", (e) => {
  const time = e.target.closest("time");
  if (time) time.title = local.format(new Date(time.dateTime));
});

// The navigation is open where there is room for it.
const wide = matchMedia("(min-width: 60rem)");
const menu = document.querySelector("details.menu");
function spread() { if (menu) menu.open = wide.matches; }
wide.addEventListener("change", spread);
spread();

// A chart draws what its table says.
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
function chart(box) {
  const table = document.getElementById(box.dataset.chart);
  if (!table || !window.uPlot) return;
  box.replaceChildren();
  const probe = box.appendChild(document.createElement("i"));
  const colour = (name) => { probe.style.color = `var(${name})`; return getComputedStyle(probe).color; };
  const heads = [...table.tHead.rows[0].cells].slice(1).map((c) => c.textContent);
  const rows = [...table.tBodies[0].rows];
  const data = [rows.map((r) => Number(r.cells[0].dataset.time))];
  heads.forEach((_, i) => data.push(rows.map((r) => Number(r.cells[i + 1].textContent))));
  const strokes = ["--accent", "--good", "--bad", "--warn", "--wait"];
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "12px Inter" };
  const plot = new uPlot({
    width: box.clientWidth, height: 240, cursor: { y: false }, legend: { live: true },
    scales: { y: { range: (_, min, max) => [0, Math.max(5, max * 1.1)] } },
    axes: [{ ...axis, values: (_, days) => days.map((t) => day.format(t * 1000)) }, { ...axis, size: 44 }],
    series: [{ value: (_, t) => t == null ? "" : day.format(t * 1000) }]
      .concat(heads.map((name, i) => ({ label: name, stroke: colour(strokes[i % strokes.length]), width: 2, points: { show: false } }))),
  }, data, box);
  box.plot = plot;
}
const widths = new ResizeObserver((all) => all.forEach(({ target }) => target.plot && target.plot.setSize({ width: target.clientWidth, height: 240 })));
const charts = () => document.querySelectorAll("[data-chart]").forEach((box) => { chart(box); widths.observe(box); });
addEventListener("load", charts);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", charts); // its colours are drawn, not styled

// A form with a preview sends itself to it as it is filled in. The frame is made
// anew each time, so that the way back does not lead through previews.
for (const form of document.querySelectorAll("form[data-preview]")) {
  const button = form.querySelector("button[formtarget]");
  let frame = form.querySelector("iframe"), wait;
  const preview = () => {
    const fresh = frame.cloneNode(false);
    fresh.removeAttribute("src");
    frame.replaceWith(fresh);
    frame = fresh;
    form.requestSubmit(button);
  };
  form.addEventListener("input", () => { clearTimeout(wait); wait = setTimeout(preview, 400); });
  preview();
}

// The contents of the manual are open beside it.
for (const toc of document.querySelectorAll("details.toc")) {
  const unfold = () => { toc.open = wide.matches; };
  wide.addEventListener("change", unfold);
  unfold();
}
