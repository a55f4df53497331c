// The service worker: shows every event, also while no page is open.

self.addEventListener('push', (event) => {
  const { id, type, payload } = event.data.json();
  // The page subscribed with userVisibleOnly, so every message is shown. One may come twice: the tag shows it once.
  event.waitUntil(
    self.registration.showNotification(payload?.title ?? type, {
      body: payload?.text ?? '',
      tag: id,
      data: { url: payload?.url ?? '/' },
    }),
  );
});

self.addEventListener('notificationclick', (event) => {
  event.notification.close();
  event.waitUntil(self.clients.openWindow(event.notification.data.url));
});
