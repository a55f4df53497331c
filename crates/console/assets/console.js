// What a page cannot do without a script: keys, theme, copying, ages that grow, charts, and the switch for live updates.
// Everything else works without it.
(() => {
  "use strict";
  const root = document.documentElement;
  const body = () => document.body;
  const keep = (name, value) => { try { value === null ? localStorage.removeItem(name) : localStorage.setItem(name, value); } catch { /* private mode */ } };
  const kept = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
  const all = (selector, from = document) => from.querySelectorAll(selector);
  const say = (text) => { const place = document.getElementById("said"); if (place) place.textContent = text; };

  // ---- theme: the system's, light or dark ----
  const themes = ["system", "light", "dark"];
  // In a cookie, so that the server paints the next page right from the start.
  const theme = () => (document.cookie.match(/(?:^|; )posthorn-theme=(light|dark)/) || [])[1] || "system";
  const paint = () => {
    const now = theme();
    if (now === "system") delete root.dataset.theme; else root.dataset.theme = now;
    for (const button of all("[data-theme-button]")) button.title = `Theme: ${now}`;
  };
  const nextTheme = () => {
    const next = themes[(themes.indexOf(theme()) + 1) % themes.length];
    document.cookie = `posthorn-theme=${next}; Path=/; SameSite=Lax; Max-Age=${next === "system" ? 0 : 31536000}`;
    paint();
    redraw();
    say(`Theme: ${next}`);
  };

  // ---- times: absolute in UTC or local, ages that grow ----
  const zone = () => kept("posthorn-zone") || "utc";
  const two = (n) => String(n).padStart(2, "0");
  const absolute = (date) => {
    const local = zone() === "local";
    const part = (name) => date[`get${local ? "" : "UTC"}${name}`]();
    const day = `${part("FullYear")}-${two(part("Month") + 1)}-${two(part("Date"))}`;
    return `${day} ${two(part("Hours"))}:${two(part("Minutes"))}:${two(part("Seconds"))}${local ? "" : " UTC"}`;
  };
  const span = (seconds) => {
    const s = Math.max(0, Math.floor(seconds));
    if (s < 60) return `${s} s`;
    if (s < 3600) return `${Math.floor(s / 60)} m`;
    if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} m`;
    return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
  };
  const tell = () => {
    const now = Date.now();
    for (const time of all("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      const exact = absolute(at);
      if (time.dataset.age !== undefined) {
        const age = (now - at.getTime()) / 1000;
        const text = age < 0 ? `in ${span(-age)}` : span(age);
        if (time.textContent !== text) time.textContent = text;
        time.title = exact;
      } else if (time.dataset.exact !== undefined && time.textContent !== exact) {
        time.textContent = exact;
      }
    }
  };
  const nextZone = () => {
    keep("posthorn-zone", zone() === "utc" ? "local" : null);
    tell();
    say(zone() === "utc" ? "Times are in UTC" : "Times are local");
  };

  // ---- copying, also where the page is not on TLS ----
  const copy = async (button) => {
    const text = button.dataset.copy;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const field = document.createElement("textarea");
      field.value = text;
      field.className = "gone";
      body().append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
      button.focus();
    }
    say("Copied");
    const label = button.querySelector("[data-label]");
    if (label) { const before = label.textContent; label.textContent = "Copied"; setTimeout(() => { label.textContent = before; }, 1500); }
  };

  // ---- live: on or off. A tab that nobody sees asks for nothing. ----
  document.addEventListener("htmx:before:request", (event) => { if (document.hidden && event.target.closest?.("[data-live]")) event.preventDefault(); });
  const live = () => kept("posthorn-live") !== "off";
  const showLive = () => {
    for (const button of all("[data-live-button]")) button.setAttribute("aria-pressed", String(live()));
  };
  const toggleLive = () => {
    keep("posthorn-live", live() ? "off" : null);
    location.reload();
  };

  // ---- charts: the numbers stand in the page as a table; this draws them ----
  const drawn = new Map();
  const draw = (figure) => {
    if (!window.uPlot) return;
    const color = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
    const source = document.getElementById(figure.dataset.chart);
    if (!source) return;
    const rows = [...all("tbody tr", source)].map((row) => [...all("[data-v]", row)].map((cell) => Number(cell.dataset.v)));
    if (!rows.length) return;
    const data = rows[0].map((_, column) => rows.map((row) => row[column]));
    const series = [...all("thead th[data-color]", source)].map((head) => ({
      label: head.textContent, stroke: color(head.dataset.color), fill: `${color(head.dataset.color)}29`, width: 1.5, points: { show: false },
    }));
    const old = drawn.get(figure);
    const width = figure.clientWidth;
    if (old && old.series.length === series.length + 1 && figure.contains(old.root)) {
      old.setData(data);
      if (old.width !== width) old.setSize({ width, height: 180 });
      return;
    }
    if (old) old.destroy();
    figure.textContent = "";
    const clock = (plot, at) => at.map((each) => { const text = absolute(new Date(each * 1e3)); return at.length > 1 && at.at(-1) - at[0] > 172800 ? text.slice(5, 10) : text.slice(11, 16); });
    const axis = { stroke: color("soft"), grid: { stroke: color("line"), width: 1 }, ticks: { show: false }, font: "12px sans-serif" };
    drawn.set(figure, new uPlot({
      width, height: 180, series: [{}, ...series], axes: [{ ...axis, values: clock }, { ...axis, size: 44 }], legend: { show: false }, cursor: { drag: { x: false, y: false } },
      tzDate: (at) => zone() === "local" ? new Date(at * 1e3) : uPlot.tzDate(new Date(at * 1e3), "Etc/UTC"),
      scales: { y: { range: (_, min, max) => [0, Math.max(1, max * 1.1)] } },
    }, data, figure));
  };
  const drawAll = () => {
    for (const [figure, plot] of drawn) if (!figure.isConnected) { plot.destroy(); drawn.delete(figure); }
    for (const figure of all("[data-chart]")) draw(figure);
  };
  const redraw = () => {
    for (const plot of drawn.values()) plot.destroy();
    drawn.clear();
    drawAll();
  };

  // ---- keys ----
  const typing = (target) => target.closest?.("input, textarea, select, [contenteditable]");
  const rows = () => [...all("tr[data-row] a[data-open]")];
  const step = (by) => {
    const links = rows();
    if (!links.length) return;
    const at = links.indexOf(document.activeElement);
    links[Math.min(links.length - 1, Math.max(0, at + by))].focus();
  };
  let led = 0;
  const onKey = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || kept("posthorn-keys") === "off") return;
    if (event.key === "Escape") { for (const open of all("dialog[open]")) open.close(); if (typing(event.target)) event.target.blur(); return; }
    if (typing(event.target)) return;
    if (Date.now() - led < 1500) {
      led = 0;
      const link = document.querySelector(`[data-go="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    const does = {
      g: () => { led = Date.now(); },
      "/": () => document.querySelector("[data-search]")?.focus(),
      j: () => step(1), k: () => step(-1),
      o: () => document.activeElement?.matches?.("a[data-open]") && document.activeElement.click(),
      r: toggleLive, t: nextTheme, z: nextZone,
      "?": () => document.getElementById("help")?.showModal(),
    }[event.key];
    if (does) { event.preventDefault(); does(); }
  };

  document.addEventListener("keydown", onKey);
  document.addEventListener("click", (event) => {
    const hit = (selector) => event.target.closest(selector);
    const copied = hit("[data-copy]");
    if (copied) { copy(copied); return; }
    if (hit("[data-theme-button]")) nextTheme();
    else if (hit("[data-zone-button]")) nextZone();
    else if (hit("[data-live-button]")) toggleLive();
    else if (hit("[data-help]")) document.getElementById("help")?.showModal();
    else if (hit("[data-close]")) hit("dialog")?.close();
    else if (hit("[data-keys-button]")) { keep("posthorn-keys", kept("posthorn-keys") === "off" ? null : "off"); say(kept("posthorn-keys") === "off" ? "Keys are off" : "Keys are on"); }
    const every = hit("[data-check-all]");
    if (every) for (const box of all(`input[name="${CSS.escape(every.dataset.checkAll)}"]`)) box.checked = every.checked;
  });
  // A switch that sends its form by itself; without scripts there is a button.
  document.addEventListener("change", (event) => { if (event.target.matches("[data-submit]")) event.target.form.requestSubmit(); });
  document.addEventListener("submit", (event) => {
    const ask = event.target.dataset.ask;
    if (ask && !confirm(ask)) event.preventDefault();
    else for (const button of all("button", event.target)) setTimeout(() => { button.disabled = true; }, 0);
  });
  document.addEventListener("htmx:after:swap", () => { tell(); drawAll(); });
  window.addEventListener("pageshow", () => { for (const button of all("form button:disabled:not([data-off])")) button.disabled = false; });
  window.addEventListener("resize", drawAll);

  paint();
  if (!live()) for (const place of all("[data-live]")) for (const name of ["hx-get", "hx-trigger"]) place.removeAttribute(name);
  const start = () => {
    paint(); showLive(); tell(); drawAll();
    for (const only of all("[data-scripted]")) only.hidden = false;
    setInterval(tell, 1000);
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start); else start();
})();
