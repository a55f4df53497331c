// Has this browser subscribe with its push service, and tells the portal where messages go then.
(() => {
  "use strict";
  const form = document.querySelector("form[data-push]");
  const place = document.getElementById("browser-said");
  const { push: key, worker: script, unable, denied, unreachable } = form.dataset;
  const textOf = (bytes) => btoa(String.fromCharCode(...new Uint8Array(bytes))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  // A service that cannot be reached may never answer.
  const within = (ms, promise) => Promise.race([promise, new Promise((_, refuse) => setTimeout(() => refuse(new Error("too late")), ms))]);
  const subscribe = async () => {
    if (!("serviceWorker" in navigator) || !("PushManager" in window) || !("Notification" in window)) return unable;
    if (await Notification.requestPermission() !== "granted") return denied;
    try {
      const worker = await navigator.serviceWorker.register(script);
      await within(10000, navigator.serviceWorker.ready);
      const former = await worker.pushManager.getSubscription();
      if (former && textOf(former.options.applicationServerKey) !== key) await former.unsubscribe();
      const made = await within(20000, worker.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key }));
      form.elements.subscription.value = JSON.stringify(made);
    } catch {
      return unreachable;
    }
    form.submit();
    return "";
  };
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    place.textContent = "…";
    place.textContent = await subscribe();
  });
})();
