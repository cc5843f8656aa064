// Keeps the page's own files, so that it works with no network after the first load. `web/build`
// writes in the list and the name of the build; a new build is taken when no old page is open.
const NAME = "tilewright-BUILD_ID";
const FILES = [
  // FILES_OF_THE_BUILD
];
const here = (file) => new URL(file, self.registration.scope).href;
const kept = new Set(["./", ...FILES].map(here));

self.addEventListener("install", (event) => {
  const fresh = [...kept].map((url) => new Request(url, { cache: "reload" }));
  event.waitUntil(caches.open(NAME).then((cache) => cache.addAll(fresh)));
});

self.addEventListener("activate", (event) => {
  const forget = async () => {
    const names = await caches.keys();
    const old = names.filter((name) => name.startsWith("tilewright-") && name !== NAME);
    await Promise.all(old.map((name) => caches.delete(name)));
    await self.clients.claim();
  };
  event.waitUntil(forget());
});

self.addEventListener("fetch", (event) => {
  const url = new URL(event.request.url);
  url.search = url.hash = "";
  if (event.request.method !== "GET" || !kept.has(url.href)) return;
  const answer = async () => {
    const cache = await caches.open(NAME);
    return (await cache.match(url.href)) ?? fetch(event.request);
  };
  event.respondWith(answer());
});
