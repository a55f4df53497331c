// What a page cannot do without a script.
(() => {
	"use strict";
	const root = document.documentElement;
	const is = (name) => { try { return localStorage[`posthorn-${name}`]; } catch { } };
	const flip = (name) => { try { if (is(name)) delete localStorage[`posthorn-${name}`]; else localStorage[`posthorn-${name}`] = 1; } catch { } };
	const one = (selector, from = document) => from.querySelector(selector);
	const focused = () => document.activeElement;
	const all = (selector, from = document) => [...from.querySelectorAll(selector)];
	const on = (name, does) => document.addEventListener(name, does);
	const say = (text) => one("#said")?.replaceChildren(text);

	// ---- theme: in a cookie, for the next page ----
	const theme = () => (document.cookie.match(/(?:^|; )posthorn-theme=(light|dark)/) || [])[1] || "system";
	const paint = () => {
		const now = theme();
		if (now === "system") delete root.dataset.theme; else root.dataset.theme = now;
		one("[data-theme-button]")?.setAttribute("title", `Theme: ${now}`);
	};
	const nextTheme = () => {
		const next = { light: "dark", dark: "system" }[theme()] || "light";
		document.cookie = `posthorn-theme=${next}; Path=/; SameSite=Lax; Max-Age=${next === "system" ? 0 : 31536000}`;
		paint(); redraw(); say(`Theme: ${next}`);
	};

	// ---- times ----
	const local = () => is("local");
	const absolute = (date) => {
		const shown = new Date(date - (local() ? date.getTimezoneOffset() * 6e4 : 0)).toISOString();
		return shown.slice(0, 19).replace("T", " ") + (local() ? "" : " UTC");
	};
	const span = (seconds) => {
		const s = Math.floor(seconds), of = (large, small) => `${Math.floor(s / large)} ${large > 3600 ? "d" : "h"} ${Math.floor((s % large) / small)} ${small > 60 ? "h" : "m"}`;
		return s < 60 ? `${s} s` : s < 3600 ? `${Math.floor(s / 60)} m` : s < 86400 ? of(3600, 60) : of(86400, 3600);
	};
	const tell = (from = document) => {
		for (const time of all("time[datetime]", from)) {
			const at = new Date(time.dateTime), age = (Date.now() - at) / 1e3;
			if (isNaN(age)) continue;
			const exact = absolute(at), grows = time.dataset.age !== undefined;
			const text = !grows ? exact : age < 0 ? `in ${span(-age)}` : span(age);
			if (time.textContent !== text) time.textContent = text;
			if (grows) time.title = exact;
		}
	};
	const nextZone = () => { flip("local"); tell(); say(`Times are ${local() ? "local" : "in UTC"}`); };

	// ---- copying ----
	const copy = async (button) => {
		const text = button.dataset.copy;
		try {
			await navigator.clipboard.writeText(text);
		} catch {
			const field = document.createElement("textarea");
			field.value = text;
			field.className = "gone";
			document.body.append(field);
			field.select();
			document.execCommand("copy");
			field.remove();
			button.focus();
		}
		say("Copied");
		for (const label of all("[data-label]", button)) label.textContent = "Copied";
	};

	// ---- live ----
	const live = () => !is("still");
	let stream, later, retry, asking, missed, left, said = 0;
	const quiet = (text) => { if (text && Date.now() - said > 1e4) { said = Date.now(); say(text); } };
	const lost = (place, gone) => {
		if (place.hidden && gone) one("time", place).dateTime = new Date().toISOString();
		place.hidden = !gone;
	};
	// Rows never move under pointer or focus. False: not now.
	const hold = (part, next, force) => {
		for (const table of all("table[id]", part)) {
			const other = one(`#${table.id}`, next), rows = all("tr[id]", table);
			const fresh = other ? all("tr[id]", other).filter((row) => !rows.some((own) => own.id === row.id)) : [];
			if (force || !(table.matches(":hover") || table.contains(focused()) || one(":checked", table))) {
				for (const row of fresh) row.classList.add("new");
				continue;
			}
			if (!other) return false;
			other.tBodies[0].replaceChildren(...rows.map((row) => one(`#${row.id}`, other) || row.cloneNode(true)));
			const waits = one("[data-waits]", next);
			if (waits && fresh.length) { waits.hidden = false; quiet(waits.textContent = `${fresh.length} new – show`); }
		}
		return true;
	};
	// Once: two reloads at a time crash Chromium.
	const leave = () => { stream?.close(); left ||= location.reload() || 1; };
	const refresh = async (force) => {
		if (asking) { missed = force === true || missed || 1; return; }
		asking = true;
		try {
			const answer = await fetch(location.href);
			if (answer.redirected) return leave();
			if (!answer.ok) throw answer;
			const whole = new DOMParser().parseFromString(await answer.text(), "text/html");
			for (const part of all("[data-live]")) {
				const next = whole.getElementById(part.id);
				if (!next) continue;
				for (const only of all("[data-scripted]", next)) only.hidden = false;
				tell(next);
				all("details", next).forEach((own, at) => { own.open ||= all("details", part)[at]?.open; });
				if (hold(part, next, force === true)) await htmx.swap({ sourceElement: part, target: part, text: next.outerHTML, swap: "outerMorph" });
			}
			quiet(one("[data-say]")?.textContent);
			lost(one("#lost"), false);
		} catch { lost(one("#lost"), true); clearTimeout(retry); retry = setTimeout(refresh, 5e3); }
		asking = 0;
		const again = missed;
		missed = 0;
		if (again) refresh(again);
	};
	const listen = () => {
		const url = one("[data-stream]")?.dataset.stream;
		one("[data-live-button]")?.setAttribute("aria-pressed", live());
		clearTimeout(later);
		if (!url || !live() || document.hidden) { stream?.close(); stream = null; }
		else if (!stream) {
			stream = new EventSource(url);
			let failed = 0;
			stream.onmessage = refresh;
			stream.onopen = () => { failed = 0; if (!one("#lost").hidden) refresh(); };
			stream.addEventListener("over", leave);
			// Two in a row are trouble.
			stream.onerror = () => {
				const over = stream?.readyState > 1;
				if (failed++ || over) refresh();
				if (over) { stream = null; later = setTimeout(listen, 5e3); }
			};
		}
	};
	const toggleLive = () => { flip("still"); listen(); say(live() ? "Live" : "Not live"); };

	// ---- charts, of tables ----
	const drawn = new Map();
	const draw = (figure) => {
		if (!window.uPlot) return;
		const color = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
		const source = one(`#${figure.dataset.chart}`);
		const rows = all("tbody tr", source).map((row) => all("[data-v]", row).map((cell) => +cell.dataset.v));
		if (!rows.length) return;
		const data = rows[0].map((_, column) => rows.map((row) => row[column]));
		const series = all("thead th[data-color]", source).map((head) => ({
			stroke: color(head.dataset.color), fill: `${color(head.dataset.color)}29`, width: 1.5, points: { show: false },
		}));
		const old = drawn.get(figure), size = { width: figure.clientWidth, height: 180 };
		if (old) { old.setData(data); if (old.width !== size.width) old.setSize(size); return; }
		const clock = (plot, at) => at.map((each) => absolute(new Date(each * 1e3)).slice(...at.at(-1) - at[0] > 172800 ? [5, 10] : [11, 16]));
		const axis = { stroke: color("soft"), grid: { stroke: color("line"), width: 1 }, ticks: { show: false }, font: "12px sans-serif" };
		drawn.set(figure, new uPlot({
			...size, series: [{}, ...series], axes: [{ ...axis, values: clock }, { ...axis, size: 44 }], legend: { show: false }, cursor: { drag: { x: false, y: false } },
			tzDate: (at) => local() ? new Date(at * 1e3) : uPlot.tzDate(new Date(at * 1e3), "Etc/UTC"),
			scales: { y: { range: (_, min, max) => [0, Math.max(1, max * 1.1)] } },
		}, data, figure));
	};
	const drawAll = () => {
		for (const [figure, plot] of drawn) if (!figure.isConnected) { plot.destroy(); drawn.delete(figure); }
		all("[data-chart]").forEach(draw);
	};
	const redraw = () => { for (const plot of drawn.values()) plot.destroy(); drawn.clear(); drawAll(); };

	// ---- keys ----
	const typing = (target) => target.closest?.("input, textarea, select, [contenteditable]");
	const step = (by) => {
		const links = all("tr[data-row] a[data-open]");
		const at = links.indexOf(focused());
		links[Math.min(links.length - 1, Math.max(0, at + by))]?.focus();
	};
	let led = 0;
	on("keydown", (event) => {
		if (event.ctrlKey || event.metaKey || event.altKey || is("no-keys")) return;
		if (typing(event.target)) { if (event.key === "Escape") event.target.blur(); return; }
		if (Date.now() - led < 1500) {
			led = 0;
			const link = one(`[data-go="${CSS.escape(event.key)}"]`);
			if (link) { event.preventDefault(); link.click(); }
			return;
		}
		const does = {
			g: () => { led = Date.now(); },
			"/": () => one("[data-search]")?.focus(),
			j: () => step(1), k: () => step(-1),
			o: () => focused().matches("a[data-open]") && focused().click(),
			r: toggleLive, t: nextTheme, z: nextZone,
			"?": clicks.help,
		}[event.key];
		if (does) { event.preventDefault(); does(); }
	});
	const clicks = {
		copy, waits: () => refresh(true), help: () => one("#help").showModal(), close: (button) => button.closest("dialog").close(),
		"theme-button": nextTheme, "zone-button": nextZone, "live-button": toggleLive,
		"keys-button": () => { flip("no-keys"); say(`Keys are ${is("no-keys") ? "off" : "on"}`); },
		"check-all": (every) => { for (const box of all(`input[name="${every.dataset.checkAll}"]`)) box.checked = every.checked; },
	};
	on("click", (event) => {
		for (const name in clicks) { const hit = event.target.closest(`[data-${name}]`); if (hit) clicks[name](hit); }
	});
	on("change", (event) => { if (event.target.matches("[data-submit]")) event.target.form.requestSubmit(); });
	on("submit", (event) => {
		const ask = event.target.dataset.ask;
		if (ask && !confirm(ask)) event.preventDefault();
		else for (const button of all("button", event.target)) setTimeout(() => { button.disabled = true; }, 0);
	});
	on("htmx:after:swap", () => { tell(); drawAll(); });
	on("visibilitychange", listen);
	addEventListener("pagehide", () => { stream?.close(); stream = null; });
	addEventListener("pageshow", () => { for (const button of all("form button:disabled:not([data-off])")) button.disabled = false; listen(); });
	addEventListener("resize", drawAll);

	paint(); tell(); drawAll(); listen();
	for (const only of all("[data-scripted]")) only.hidden = false;
	setInterval(tell, 1000);
})();
