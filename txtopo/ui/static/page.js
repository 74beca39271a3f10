// What all pages do: ask for the parts that are in view, as long as the page is; show tabs; send what a button asks for.
"use strict";

const slug = document.body.dataset.slug;
const api = slug && `/api/v1/topology/${slug}`;
const TIMELINE_MS = 250, ANSWER_MS = 10000, RETRY_MAX_MS = 5000;
const $ = id => document.getElementById(id);

// ---- parts: HTML from the server takes the place of what is there, without a flicker ----

// Make a node like a fresh one. What the user has done stays: focus, selection, what is open, what is typed, scrolling.
function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || old.dataset?.key !== fresh.dataset?.key) { old.replaceWith(fresh); return; }
  if (old.nodeType === Node.TEXT_NODE) { if (old.data !== fresh.data) old.data = fresh.data; return; }
  if (old.nodeType !== Node.ELEMENT_NODE || old.hasAttribute("data-own")) return;
  for (const {name} of [...old.attributes]) if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const {name, value} of fresh.attributes) if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  morphChildren(old, fresh);
}

function morphChildren(old, fresh) {
  const keyed = new Map([...old.children].filter(each => each.dataset?.key !== undefined).map(each => [each.dataset.key, each]));
  let at = old.firstChild;
  for (const each of [...fresh.childNodes]) {
    const same = keyed.get(each.dataset?.key);
    if (same) {
      if (same === at) at = at.nextSibling; else old.insertBefore(same, at);
      morph(same, each);
    } else if (!at || at.dataset?.key !== undefined) old.insertBefore(each, at);
    else { const next = at.nextSibling; morph(at, each); at = next; }
  }
  while (at) { const next = at.nextSibling; at.remove(); at = next; }
}

function show(element, html) {
  if (element.shown === html) return;
  element.shown = html;
  const {body} = new DOMParser().parseFromString(html, "text/html");
  for (const link of body.querySelectorAll("[data-transaction]")) link.href = `/t/${slug}/tx/${link.dataset.transaction}`;
  const fresh = document.createElement(element.localName);
  fresh.append(...body.childNodes);
  morphChildren(element, fresh);
}

// ---- asking: each feed asks in its rhythm while it is in view; none while the page is hidden ----

const feeds = new Set();
const OVER = new Set(["ended", "failed", "killed"]);
let status = null;  // of the run, as the header says

class Feed {
  constructor(everyMs, isWanted, address, take) { Object.assign(this, {everyMs, isWanted, address, take, failures: 0}); feeds.add(this); }

  async ask() {
    clearTimeout(this.timer);
    if (this.asking) { this.again = true; return; }
    if (document.hidden || !this.isWanted()) return;
    this.asking = true;
    try {
      const answer = await fetch(this.address(), {signal: AbortSignal.timeout(ANSWER_MS), cache: "no-store"});
      if (answer.status === 401) { connection("This session has ended: open the address that the command has printed.", true); return; }
      await this.take(answer);
      this.failures = 0;
      connection(OVER.has(status) ? "the run is over: this is how it ended" : "live", false);
    } catch (error) {
      if (!(error instanceof TypeError || error.name === "TimeoutError" || error.name === "AbortError")) console.error(error);
      this.failures++;
      connection("no answer from the page's server; trying again (it ends with its run: txtopo ui OUTPUT shows it then)", true);
    } finally { this.asking = false; }
    if (this.again) { this.again = false; this.ask(); } else this.later();
  }

  later() {
    clearTimeout(this.timer);
    const wait = this.failures ? Math.min(Math.max(this.everyMs, 500) * 2 ** this.failures, RETRY_MAX_MS) : this.everyMs;
    this.timer = setTimeout(() => this.ask(), wait);
  }

  end() { feeds.delete(this); clearTimeout(this.timer); }
}

function connection(words, isBad) {
  const line = $("connection");
  if (line.textContent !== words) line.textContent = words;
  line.classList.toggle("bad", isBad);
}

document.addEventListener("visibilitychange", () => { for (const feed of feeds) feed.ask(); });

const inView = element => element.checkVisibility();

for (const element of document.querySelectorAll("[data-part]")) {
  element.feed = new Feed(Number(element.dataset.every), () => inView(element), () => partAddress(element.dataset.part), async answer => {
    show(element, await answer.text());
    status = element.querySelector("[data-status]")?.dataset.status ?? status;
    if (status && gantt) gantt.setLive(status);
    if (element.querySelector("[data-done]")) element.feed.end();
  });
}

function partAddress(part) { return part.startsWith("/") ? part : `/part/${slug}/${part}`; }

// ---- tabs ----

const views = [...document.querySelectorAll(".view")];

function tab() {
  if (!views.length) return;
  const name = views.find(view => `#${view.id}` === location.hash)?.id ?? views[0].id;
  for (const view of views) view.hidden = view.id !== name;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  for (const feed of feeds) feed.ask();
}

addEventListener("hashchange", () => { tab(); scrollTo(0, 0); });

// ---- the timeline ----

let gantt = null;

function timeline(canvas) {
  gantt = new Gantt(canvas);
  let head = 0, hinted = null, known = null;
  gantt.setLive = status => {
    const live = status === "running" || status === "starting";
    if (known === null && OVER.has(status)) gantt.showAll = true;  // a run that was over before it was looked at shows all of it
    if (live) { gantt.showAll = false; if (gantt.isAll) gantt.setFollow(true); }  // until another one begins
    if (live !== gantt.live) Object.assign(gantt, {live, dirty: true});
    known = status;
  };
  const feed = new Feed(TIMELINE_MS, () => inView($("timeline")), () => `${api}/timeline?since=${head}`, async answer => {
    const data = await answer.json();
    $("no-timeline").hidden = answer.ok;
    feed.everyMs = answer.ok ? TIMELINE_MS : 4 * TIMELINE_MS;
    if (!answer.ok) { $("no-timeline").textContent = data.errorMessage; return; }
    if (data.head < head) { gantt.clear(); head = 0; return; }  // another file: the folder was wiped
    head = gantt.add(data) ? data.head : 0;
    if (hinted !== null) gantt.onhover(hinted);
  });
  const panel = $("panel");
  let wanted = null, timer = 0;
  const details = new Feed(1000, () => wanted !== null && inView(panel), () => `/part/${slug}/transaction/${wanted}`, async answer => {
    const of = wanted, html = await answer.text();
    if (of !== wanted) return;  // another one has been picked since
    show(panel, html);
    details.everyMs = panel.querySelector("[data-done]") ? 60000 : 1000;
  });
  gantt.onhover = txid => {
    hinted = txid;
    const text = gantt.describe(txid);
    if ($("hint").textContent !== text) $("hint").textContent = text;
  };
  gantt.onpick = txid => {
    gantt.onhover(txid);
    wanted = txid;
    clearTimeout(timer);
    timer = setTimeout(() => details.ask(), 80);  // an arrow key that is held asks once, at its end
  };
  gantt.onopen = txid => { location.href = `/t/${slug}/tx/${txid}`; };
  gantt.onmove = () => {
    $("follow").setAttribute("aria-pressed", gantt.follow);
    $("aligned").setAttribute("aria-pressed", gantt.aligned);
  };
  const does = {follow: () => gantt.setFollow(!gantt.follow), aligned: () => gantt.align(!gantt.aligned), closer: () => gantt.zoom(0.8, 0.8), farther: () => gantt.zoom(1.25, 1.25), all: () => gantt.all()};
  for (const id in does) $(id).addEventListener("click", does[id]);
  $("find").addEventListener("submit", event => {
    event.preventDefault();
    const txid = Number($("wanted").value);
    if (Number.isInteger(txid) && txid > 0) gantt.pick(txid);
  });
  table();
}

function table() {  // of the transactions in view
  const element = $("in-view");
  element.feed.address = () => {
    if ($("failed-only").checked) return partAddress("transactions?failed=1&limit=100");
    const {low, high} = gantt.view;
    return partAddress(`transactions?from=${Math.max(Math.floor(low), 1)}&to=${Math.max(Math.ceil(high), 1)}&limit=100`);
  };
  element.feed.isWanted = () => $("rows").open && inView($("rows"));
  $("rows").addEventListener("toggle", () => element.feed.ask());
  $("failed-only").addEventListener("change", () => element.feed.ask());
}

// ---- what buttons and forms do ----

document.addEventListener("click", event => {
  const button = event.target.closest("[data-post]");
  if (button) ask(button);
});

function ask(button) {
  const {post: what, confirm: question} = button.dataset;
  if (!question) { send(what, button); return; }
  const dialog = $("question"), form = document.createElement("form"), field = document.createElement("input");
  form.method = "dialog";
  const add = (name, properties, parent = form) => { const each = Object.assign(document.createElement(name), properties); parent.append(each); return each; };
  add("p", {textContent: question});
  if (button.hasAttribute("data-settings")) {
    const label = add("label", {textContent: "settings, as name=value with spaces between: "});
    label.append(field);
  }
  add("button", {textContent: "no", value: ""});
  add("button", {textContent: `yes, ${what}`, value: "yes", className: "danger"});
  dialog.replaceChildren(form);
  dialog.returnValue = "";
  dialog.onclose = () => {
    if (dialog.returnValue === "yes") send(what, button, Object.fromEntries(field.value.split(/\s+/).filter(Boolean).map(each => [each.split("=")[0], each.slice(each.indexOf("=") + 1)])));
    button.focus();
  };
  dialog.showModal();
}

async function send(what, button, settings = {}) {
  const section = $("check"), say = text => section.replaceChildren(Object.assign(document.createElement("p"), {textContent: text, className: "message"}));
  section.shown = null;
  try {
    const answer = await fetch(`${api}/${what}`, {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(Object.keys(settings).length ? {settings} : {})});
    const said = await answer.json();
    if (!answer.ok) { say(said.errorMessage); return; }
    if (said.check) watch(said.check, section); else say(`${what}: done`);
    for (const feed of feeds) feed.ask();
  } catch (error) { say(`no answer from the page's server: ${error.message}`); }
}

let watching = null;

function watch(number, section) {
  watching?.end();
  const feed = watching = new Feed(500, () => true, () => `/part/check/${number}`, async answer => {
    show(section, await answer.text());
    if (!section.querySelector("[data-running]")) feed.end();
  });
  feed.ask();
}

document.addEventListener("submit", async event => {
  const form = event.target;
  if (!form.matches(".lookup")) return;
  event.preventDefault();
  const fields = new URLSearchParams(new FormData(form)), keys = fields.getAll("key");
  if (!fields.get("txid")) fields.delete("txid");
  while (keys.at(-1) === "") keys.pop();  // only what is before another one can be an empty text
  fields.delete("key");
  keys.forEach(key => fields.append("key", key));
  const into = form.parentElement.querySelector(".answer");
  into.setAttribute("aria-busy", "true");
  const asked = form.asked = `rows?${fields}`;
  const html = await fetch(partAddress(asked)).then(answer => answer.text()).catch(error => error);
  if (form.asked !== asked) return;  // somebody has asked for something else meanwhile
  if (html instanceof Error) into.shown = into.textContent = `no answer from the page's server: ${html.message}`;
  else show(into, html);
  into.removeAttribute("aria-busy");
});

// ---- the plots: of so many seconds, the last ones or earlier ones ----

function plots() {
  const part = $("plots-part"), secs = $("secs"), take = part.feed.take, shown = () => part.querySelector("[data-until]");
  let until = null;  // what is wished for, in seconds since 1970; null: they go on with the run
  const wish = moment => {
    until = moment;
    part.dataset.part = `plots?secs=${secs.value}${until === null ? "" : `&until=${until}`}`;
    sessionStorage.setItem("secs", secs.value);
  };
  const ask = moment => { wish(moment); part.feed.ask(); };
  const move = by => ask((until ?? Number(shown().dataset.until)) + by * secs.value / 2);
  part.feed.take = async answer => {
    await take(answer);
    if (!shown()) return;
    const isLast = "last" in shown().dataset;
    $("later").disabled = $("latest").disabled = isLast;
    // An answer to what was asked for before a click does not undo the click.
    if (isLast && answer.url.endsWith(part.dataset.part)) wish(null);
  };
  const does = {earlier: () => move(-1), later: () => move(1), latest: () => ask(null)};
  for (const id in does) $(id).addEventListener("click", does[id]);
  secs.addEventListener("change", () => ask(until));
  const kept = sessionStorage.getItem("secs");
  if ([...secs.options].some(each => each.value === kept)) { secs.value = kept; ask(null); }
}

// ---- the graph: as wide as the window, unless somebody has asked for another size ----

function graph() {
  let zoom = null;
  const part = $("graph-part"), take = part.feed.take;
  const size = by => {
    const frame = $("graph-frame"), svg = frame?.querySelector("svg");
    if (!svg || !frame.clientWidth) return;
    const fit = Math.min(1, frame.clientWidth / svg.viewBox.baseVal.width), before = Number(part.style.getPropertyValue("--zoom")) || 1;
    if (by) zoom = Math.min(Math.max((zoom ?? fit) * by, fit / 2), 4);
    const now = zoom ?? fit, middle = (frame.scrollLeft + frame.clientWidth / 2) * now / before;
    part.style.setProperty("--zoom", now);
    if (now !== before) frame.scrollLeft = middle - frame.clientWidth / 2;
  };
  part.feed.take = async answer => { await take(answer); size(); };
  const does = {closer: () => size(1.25), farther: () => size(0.8), fit: () => { zoom = null; size(); }, whole: () => { zoom = 1; size(); }};
  for (const id in does) $(`graph-${id}`).addEventListener("click", does[id]);
  part.addEventListener("wheel", event => {
    if (!event.ctrlKey || !event.target.closest("#graph-frame")) return;  // else the page scrolls
    event.preventDefault();
    size(Math.exp(-event.deltaY / 400));
  }, {passive: false});
  addEventListener("resize", () => size());
}

if ($("gantt")) timeline($("gantt"));
if ($("graph-part")) graph();
if ($("plots-part")) plots();
for (const link of document.querySelectorAll("[data-transaction]")) link.href = `/t/${slug}/tx/${link.dataset.transaction}`;
tab();
for (const feed of feeds) feed.ask();
