// What the portal cannot do without a script: redeem a link, local times, copying, answers in place, and telling the
// page around a frame how high this one is. Everything else works without it.
(() => {
  "use strict";
  const root = document.documentElement;
  const framed = window.parent !== window;
  const all = (selector, from = document) => from.querySelectorAll(selector);
  const say = (text) => { const place = document.getElementById("said"); if (place) place.textContent = text; };
  for (const only of all("[data-scripted]")) only.hidden = false;

  // ---- the way in: the token stands behind the sign that browsers send to nobody; it is posted once and removed ----
  const way = document.getElementById("way-in");
  if (way) {
    const token = location.hash.slice(1);
    if (/^lnk_[\w.-]{10,200}$/.test(token)) {
      history.replaceState(null, "", location.pathname + location.search);
      way.elements.token.value = token;
      way.elements.framed.value = framed ? "1" : "";
      way.elements.look.value = location.search.slice(1);
      way.submit();
    } else {
      location.replace(way.dataset.home);
    }
    return;
  }

  // ---- times as people write them where they are ----
  const clock = new Intl.DateTimeFormat(root.lang, { dateStyle: "medium", timeStyle: "medium" });
  const tell = (from = document) => {
    for (const time of all("time[datetime]", from)) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      time.title = at.toISOString();
      time.textContent = clock.format(at);
    }
  };

  // ---- copying, also where the page is not on TLS ----
  const copy = async (button) => {
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
    } catch {
      const field = document.createElement("textarea");
      field.value = button.dataset.copy;
      field.className = "gone";
      document.body.append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
      button.focus();
    }
    say(button.dataset.done);
  };

  // ---- a part of another page in place of one here ----
  const part = async (id, answer) => {
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const old = document.getElementById(id);
    const fresh = page.getElementById(id);
    const shown = fresh && (fresh.hasChildNodes() || !page.querySelector(".notice.bad")) ? fresh : page.querySelector(".notice.bad, .login");
    if (!old || !shown) return;
    if (shown === fresh) old.replaceWith(fresh); else old.replaceChildren(shown);
    tell();
  };
  const inline = async (form) => {
    const place = document.getElementById(form.dataset.inline);
    const buttons = all("button", form);
    for (const button of buttons) button.disabled = true;
    place.textContent = form.dataset.runs;
    say(form.dataset.runs);
    try {
      await part(form.dataset.inline, await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)) }));
      say(document.getElementById(form.dataset.inline)?.textContent.trim() || "");
    } catch {
      place.textContent = "";
      form.removeAttribute("data-inline");
      form.requestSubmit();
    } finally {
      for (const button of buttons) button.disabled = false;
    }
  };

  // ---- what goes on by itself; a tab that nobody sees asks for nothing ----
  const follow = (asked = 0) => {
    const places = [...all("[data-live]")];
    if (!places.length || asked >= Number(places[0].dataset.asks || Infinity)) return;
    setTimeout(async () => {
      const seen = !document.hidden;
      try { if (seen) await renew(places, await fetch(location.href)); } catch { /* the next time */ }
      follow(asked + seen);
    }, Number(places[0].dataset.live));
  };
  // Nothing moves under the focus: such a part waits until that is elsewhere.
  const renew = async (places, answer) => {
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const place of places) {
      const fresh = page.getElementById(place.id);
      if (place.contains(document.activeElement)) continue;
      if (fresh) place.replaceWith(fresh); else place.replaceChildren(...all(".notice.bad, .login", page));
    }
    const told = document.querySelector("[data-say]")?.textContent;
    if (told && told !== said) say(said = told);
    tell();
  };
  let said = document.querySelector("[data-say]")?.textContent;

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (button) copy(button);
  });
  // Whoever picks one type wants only some.
  document.addEventListener("input", (event) => {
    const wish = event.target.dataset?.picks;
    const radio = wish && event.target.form.querySelector(`input[name="events"][value="${wish}"]`);
    if (radio) radio.checked = true;
    // What is picked last is shown beside.
    const example = event.target.checked && event.target.closest("li")?.querySelector("[data-example]");
    const place = document.getElementById("example");
    if (example && place) {
      place.textContent = example.textContent;
      document.getElementById("example-of").textContent = event.target.value;
    }
  });
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (event.defaultPrevented) return;
    if (form.dataset.inline) { event.preventDefault(); inline(form); return; }
    for (const button of all("button", form)) setTimeout(() => { button.disabled = true; }, 0);
  });
  window.addEventListener("pageshow", () => { for (const button of all("button:disabled")) button.disabled = false; });

  tell();
  follow();
  if (framed) {
    root.dataset.framed = "";
    let last = 0;
    const grow = () => {
      const height = Math.ceil(document.body.getBoundingClientRect().height);
      if (height !== last) window.parent.postMessage({ type: "svix.iframe-resizer-height", payload: { height: (last = height) } }, "*");
    };
    new ResizeObserver(grow).observe(document.body);
    grow();
  }
})();
