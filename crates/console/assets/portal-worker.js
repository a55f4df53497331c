// Shows every message that comes to this browser, also while no page is open.
self.addEventListener("push", (event) => {
  const { id, type, payload } = event.data.json();
  const text = (value) => (typeof value === "string" ? value : "");
  // A message may come twice: the tag shows it once.
  event.waitUntil(self.registration.showNotification(text(payload?.title) || type, { body: text(payload?.text), tag: id, data: { id } }));
});
self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(self.clients.openWindow(`${self.registration.scope}messages/${event.notification.data.id}`));
});
