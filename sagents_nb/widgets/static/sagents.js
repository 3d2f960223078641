// @ts-check
/**
 * The browser's half of every view: draws HTML that Python rendered, patches parts of it in place, appends
 * streamed text, lights cells, and sends clicks and form values back. It decides nothing.
 *
 * A view is two widgets in one box. The *screen* receives and draws. The *wire* is invisible and sends: on
 * ipykernel 7.4 a click reaches a busy kernel only over a comm that published last from a subshell, which a comm
 * that other threads publish on cannot be. The wire's comm says hello once and is answered from that subshell.
 *
 * @typedef {{get(name: string): any, on(name: string, fn: Function): void, off(name: string, fn: Function): void,
 *            send(message: object): void}} Model
 * @typedef {{model: Model, el: HTMLElement, signal?: AbortSignal}} RenderProps
 * @typedef {{op: "put", key: string, html: string, into?: string, first?: boolean}
 *         | {op: "drop", key: string}
 *         | {op: "text", key: string, text: string}
 *         | {op: "status", status: string}
 *         | {op: "lit", steps: [string, number][]}} Op
 * @typedef {{t: string, seq?: number, ops?: Op[], html?: string, lit?: string[], n?: number, error?: string}} Inbound
 * @typedef {(answer: {error?: string}) => void} Reply
 * @typedef {{message: Record<string, any>, reply?: Reply}} Outgoing
 */

const POST = "sag-post"; // event on the wire's element: send this
const READY = "sag-ready"; // event from the wire's element, bubbling: it can send now
const DWELL = 150; // ms that a cell stays lit at least
const BEHIND = 1000; // ms that the lights may lag
const PATIENCE = 10_000; // ms without an answer until the person is told

// ---------------------------------------------------------------------------------------------- the wire

/** @param {RenderProps} props */
function renderWire({ model, el }) {
  let number = 0;
  /** @type {Map<number, Reply>} */
  const waiting = new Map();
  el.classList.add("sag-wire");
  el.hidden = true;

  /** @param {Event} event */
  const post = (event) => {
    const { message, reply } = /** @type {CustomEvent<Outgoing>} */ (event).detail;
    number += 1;
    if (reply) waiting.set(number, reply);
    try {
      model.send({ ...message, n: number });
    } catch (error) {
      waiting.delete(number);
      reply?.({ error: `The message could not be sent: ${error}` });
    }
  };
  /** @param {Inbound} message */
  const receive = (message) => {
    if (message?.t !== "ack" || message.n === undefined) return;
    const reply = waiting.get(message.n);
    waiting.delete(message.n);
    reply?.({ error: message.error });
  };
  el.addEventListener(POST, post);
  model.on("msg:custom", receive);
  model.send({ t: "hello", n: 0 });
  el.dataset.ready = "";
  el.dispatchEvent(new CustomEvent(READY, { bubbles: true }));
  return () => {
    el.removeEventListener(POST, post);
    model.off("msg:custom", receive);
  };
}

// ---------------------------------------------------------------------------------------------- patching

// What the browser or the person set; Python's HTML does not know of it and must not wipe it.
const OURS = new Set(["open", "data-lit", "data-lit-order", "data-peer", "data-new", "data-tab", "data-sent",
  "aria-busy", "aria-selected", "tabindex"]);

/** @param {Node} node */
function keyOf(node) {
  return node instanceof Element ? node.getAttribute("data-key") : null;
}

/**
 * Whether a person has something in the node in hand: focus, a changed input, a selection, an opened fold.
 * @param {Node} node
 */
function inHand(node) {
  if (selected(node)) return true;
  if (!(node instanceof Element)) return false;
  if (node.contains(document.activeElement)) return true;
  if (node.matches("details[open]") || node.querySelector("details[open]")) return true;
  const inputs = node.matches("input, textarea, select") ? [node] : node.querySelectorAll("input, textarea, select");
  return [...inputs].some((input) =>
    (input instanceof HTMLInputElement && (input.value !== input.defaultValue || input.checked !== input.defaultChecked))
    || (input instanceof HTMLTextAreaElement && input.value !== input.defaultValue));
}

/** @param {Node} node */
function selected(node) {
  const selection = document.getSelection();
  return !!selection && !selection.isCollapsed && selection.rangeCount > 0
    && selection.getRangeAt(0).intersectsNode(node);
}

/**
 * Make a live element equal to another one, keeping every node that can stay.
 * @param {Element} live
 * @param {Element} wanted
 * @returns {boolean} false when something in hand had to stay as it was: try again later
 */
export function patch(live, wanted) {
  if (live.isEqualNode(wanted)) return true;
  for (const { name, value } of wanted.attributes) {
    if (!OURS.has(name) && live.getAttribute(name) !== value) live.setAttribute(name, value);
  }
  for (const { name } of [...live.attributes]) {
    if (!OURS.has(name) && !wanted.hasAttribute(name)) live.removeAttribute(name);
  }
  if (live.hasAttribute("data-hold")) return true;
  return patchChildren(live, wanted);
}

/**
 * @param {Element} live
 * @param {Element} wanted
 */
function patchChildren(live, wanted) {
  let complete = true;
  /** @type {Map<string, Element>} */
  const keyed = new Map();
  for (const child of live.children) {
    const key = keyOf(child);
    if (key !== null) keyed.set(key, child);
  }
  const coming = new Set([...wanted.children].map(keyOf));
  /** @type {ChildNode | null} */
  let here = live.firstChild;
  /** @param {ChildNode} node */
  const remove = (node) => {
    if (inHand(node)) complete = false;
    else node.remove();
  };
  for (const child of [...wanted.childNodes]) {
    const key = keyOf(child);
    while (here && keyOf(here) !== null && !coming.has(keyOf(here))) {
      const gone = here;
      here = here.nextSibling;
      remove(gone);
    }
    const match = key !== null ? keyed.get(key) ?? null : fits(here, child) ? here : null;
    if (!match || match.nodeName !== child.nodeName) {
      live.insertBefore(document.importNode(child, true), here);
      if (match) {
        if (match === here) here = here.nextSibling;
        remove(match);
      }
      continue;
    }
    if (match === here) here = here.nextSibling;
    else live.insertBefore(match, here);
    if (match instanceof Element && child instanceof Element) complete = patch(match, child) && complete;
    else if (match instanceof CharacterData && match.data !== /** @type {CharacterData} */ (child).data) {
      if (selected(match)) complete = false;
      else match.data = /** @type {CharacterData} */ (child).data;
    }
  }
  while (here) {
    const gone = here;
    here = here.nextSibling;
    remove(gone);
  }
  return complete;
}

/**
 * Whether an unkeyed node may become another one.
 * @param {Node | null} live
 * @param {Node} wanted
 */
function fits(live, wanted) {
  if (!live || live.nodeName !== wanted.nodeName || keyOf(live) !== null) return false;
  return !(live instanceof Element && wanted instanceof Element) || live.classList[0] === wanted.classList[0];
}

/** @param {string} html */
function parse(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content;
}

// ---------------------------------------------------------------------------------------------- the lights

/** Lights cells in the order in which things happened, each long enough to be seen, never far behind. */
class Lights {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    /** @type {[string, number][]} */
    this.queue = [];
    /** @type {Map<string, Element>} */
    this.cells = new Map();
    this.count = 0;
    this.pace = DWELL;
    /** @type {ReturnType<typeof setTimeout> | 0} */
    this.timer = 0;
  }

  /** @param {string} name */
  cell(name) {
    let cell = this.cells.get(name);
    if (!cell?.isConnected) {
      this.cells.clear();
      for (const each of this.root.querySelectorAll("[data-cell]")) this.cells.set(each.getAttribute("data-cell") ?? "", each);
      cell = this.cells.get(name);
    }
    return cell;
  }

  /** @param {[string, number][]} steps */
  add(steps) {
    this.queue.push(...steps);
    // All that waits must fit into the time that the lights may lag behind.
    const waiting = this.queue.reduce((sum, step) => sum + step[1], 0);
    this.pace = Math.min(DWELL, BEHIND / Math.max(1, waiting));
    if (!this.timer) this.play();
  }

  /** @param {string[]} names cells that are lit now, whatever was shown before */
  set(names) {
    clearTimeout(this.timer);
    this.timer = 0;
    this.queue = [];
    for (const cell of this.root.querySelectorAll("[data-lit]")) cell.removeAttribute("data-lit");
    for (const name of names) this.cell(name)?.setAttribute("data-lit", "");
  }

  play() {
    this.timer = 0;
    while (this.queue.length) {
      const [name, on] = /** @type {[string, number]} */ (this.queue.shift());
      const cell = this.cell(name);
      if (!cell) continue;
      if (!on) {
        cell.removeAttribute("data-lit");
        continue;
      }
      this.count += 1;
      const order = (cell.getAttribute("data-lit-order") ?? "").split(" ").filter(Boolean);
      cell.setAttribute("data-lit-order", [...order.slice(-49), this.count].join(" "));
      cell.setAttribute("data-lit", "");
      // A browser's timers are no finer than some 4 ms; of hundreds at once, which nobody can follow, only as many
      // are drawn as there is time for.
      const drawn = Math.max(1, Math.round(16 / this.pace));
      if (this.pace >= 16 || this.count % drawn === 0) {
        this.timer = setTimeout(() => this.play(), Math.max(16, this.pace));
        return;
      }
    }
  }
}

// ---------------------------------------------------------------------------------------------- the screen

/** @param {RenderProps} props */
function renderScreen({ model, el }) {
  const view = Math.random().toString(36).slice(2);
  const stop = new AbortController();
  const listen = { signal: stop.signal };
  el.classList.add("sag-host");
  const root = document.createElement("div");
  el.append(root);
  const lights = new Lights(root);
  let seq = -1;
  let asked = false;
  /** @type {Map<string, Element>} what could not be patched because somebody had it in hand */
  const owed = new Map();
  /** @type {Map<string, Element>} */
  const found = new Map();

  /** @param {string} key */
  const node = (key) => {
    let element = found.get(key);
    if (!element?.isConnected || element.getAttribute("data-key") !== key) {
      element = [...root.querySelectorAll("[data-key]")].find((each) => each.getAttribute("data-key") === key);
      if (element) found.set(key, element);
    }
    return element;
  };
  const frame = () => /** @type {HTMLElement | null} */ (root.querySelector(".sag-live"));
  const log = () => /** @type {HTMLElement | null} */ (root.querySelector(".sag-log"));
  const textarea = () => /** @type {HTMLTextAreaElement | null} */ (root.querySelector(".sag-composer textarea"));

  // -- sending ----------------------------------------------------------------------------------

  /** @type {Outgoing[]} */
  let unsent = [];
  const wire = () => el.closest(".sag-box")?.querySelector(".sag-wire[data-ready]");
  /**
   * @param {Record<string, any>} message
   * @param {Reply} [reply]
   */
  const post = (message, reply) => {
    const target = wire();
    const detail = { message, reply };
    if (target) target.dispatchEvent(new CustomEvent(POST, { detail }));
    else unsent.push(detail);
  };
  let box = /** @type {Element | null} */ (null);
  const flushUnsent = () => {
    const target = wire();
    if (!target) return;
    const waiting = unsent;
    unsent = [];
    for (const detail of waiting) target.dispatchEvent(new CustomEvent(POST, { detail }));
  };
  // Where each of the two renders, and in which order, is the host's business: look until both are in the page.
  const joining = setInterval(() => {
    box ??= el.closest(".sag-box");
    if (!box || !wire()) return;
    clearInterval(joining);
    flushUnsent();
  }, 30);

  const askSnapshot = () => {
    if (asked) return;
    asked = true;
    post({ t: "resync", seq });
  };

  // -- drawing ----------------------------------------------------------------------------------

  let atEnd = true;
  const toEnd = () => {
    const list = log();
    if (list) list.scrollTop = list.scrollHeight;
    atEnd = true;
  };
  // Rows get their real height only when they are painted; a reader at the end stays there all the same.
  const sizes = new ResizeObserver(() => {
    if (atEnd) toEnd();
  });

  /**
   * Change the page so that a reader at the end stays at the end, and one further up keeps the line being read.
   * @param {() => void} change
   * @param {boolean} [grows] whether it may add something at the end
   */
  const keepingPlace = (change, grows = true) => {
    const list = log();
    if (!list || atEnd) {
      change();
      toEnd();
      return;
    }
    const edge = list.getBoundingClientRect().top;
    const read = [...list.querySelectorAll(".sag-rows > *")].find((row) => row.getBoundingClientRect().bottom > edge);
    const was = read?.getBoundingClientRect().top ?? 0;
    const height = list.scrollHeight;
    change();
    if (read?.isConnected) list.scrollTop += read.getBoundingClientRect().top - was;
    if (grows && list.scrollHeight > height) list.setAttribute("data-new", "");
  };

  /** @param {string} html */
  const draw = (html) => {
    const wanted = document.createElement("div");
    wanted.append(parse(html));
    keepingPlace(() => {
      if (patchChildren(root, wanted)) owed.delete("");
      else owed.set("", wanted);
    }, false);
    watch();
  };

  /** @param {Op} op */
  const apply = (op) => {
    if (op.op === "put") {
      const wanted = /** @type {Element} */ (parse(op.html).firstElementChild);
      const live = node(op.key);
      if (live && wanted) {
        if (live.nodeName !== wanted.nodeName && !inHand(live)) live.replaceWith(wanted);
        else if (patch(live, wanted)) owed.delete(op.key);
        else owed.set(op.key, wanted);
      } else if (wanted && op.into) {
        const parent = node(op.into);
        if (op.first) parent?.prepend(wanted);
        else parent?.append(wanted);
      }
    } else if (op.op === "drop") {
      const live = node(op.key);
      if (live && !inHand(live)) live.remove();
    } else if (op.op === "text") {
      const live = node(op.key);
      if (!live) return;
      const last = live.lastChild;
      if (last instanceof Text) last.appendData(op.text);
      else live.append(op.text);
      live.closest("[hidden]")?.removeAttribute("hidden");
    } else if (op.op === "status") {
      const target = frame();
      target?.setAttribute("data-status", op.status);
      target?.removeAttribute("data-sent");
    } else if (op.op === "lit") {
      lights.add(op.steps);
    }
  };

  /** @param {Inbound} message */
  const receive = (message) => {
    if (message?.t === "snapshot") {
      asked = false;
      seq = message.seq ?? seq;
      owed.clear();
      draw(message.html ?? "");
      lights.set(message.lit ?? []);
      frame()?.removeAttribute("data-sent");
    } else if (message?.t === "delta") {
      if (message.seq !== seq + 1) {
        if ((message.seq ?? 0) > seq) askSnapshot(); // one got lost: what follows would not fit
        return;
      }
      seq = message.seq;
      const ops = message.ops ?? [];
      keepingPlace(() => ops.forEach(apply), !ops.some((op) => op.op === "put" && op.first));
      if (ops.some((op) => op.op === "put" && op.key.startsWith("pane:"))) watch();
    } else if (message?.t === "roll") {
      tell();
    } else if (message?.t === "closed") {
      close();
    }
  };

  const fromTrait = () => {
    const snapshot = model.get("snapshot");
    if (snapshot?.html && (snapshot.seq ?? 0) > seq) receive({ ...snapshot, t: "snapshot" });
  };

  const close = () => {
    for (const button of root.querySelectorAll("button")) button.disabled = true;
    const input = textarea();
    if (input) {
      input.readOnly = true;
      input.placeholder = "This view was closed";
    }
  };

  const payOwed = () => {
    if (!owed.size) return;
    const waiting = [...owed];
    owed.clear();
    // Text has been appended since to the stream that could not be cleared: only a snapshot knows what it is now.
    if (waiting.some(([key]) => key === "stream")) return askSnapshot();
    for (const [key, wanted] of waiting) {
      const live = key ? node(key) : root;
      const done = !live || (key ? patch(live, wanted) : patchChildren(root, wanted));
      if (!done) owed.set(key, wanted);
    }
  };
  let paying = 0;
  const payLater = () => {
    if (owed.size && !paying) paying = window.setTimeout(() => { paying = 0; payOwed(); }, 150);
  };
  document.addEventListener("selectionchange", payLater, listen);
  root.addEventListener("focusout", payLater, listen);

  // -- what is visible --------------------------------------------------------------------------

  /** @type {Set<string>} */
  const visible = new Set();
  let told = "";
  const tell = () => {
    const panes = [...visible].sort();
    told = panes.join();
    post({ t: "visible", view, panes });
  };
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const name = /** @type {HTMLElement} */ (entry.target).dataset.pane ?? "";
      if (entry.isIntersecting) visible.add(name);
      else visible.delete(name);
    }
    if ([...visible].sort().join() !== told) tell();
  });
  const watch = () => {
    for (const pane of root.querySelectorAll("[data-pane]")) observer.observe(pane);
    for (const part of root.querySelectorAll(".sag-log, .sag-rows, .sag-stream")) sizes.observe(part);
  };

  // -- what people do ---------------------------------------------------------------------------

  /**
   * @param {string} name
   * @param {Record<string, any>} values
   * @param {Element} [source]
   * @param {Reply} [then]
   */
  const press = (name, values, source, then) => {
    source?.setAttribute("aria-busy", "true");
    const slow = setTimeout(() => fail("The kernel has not answered yet. It may be busy, or gone."), PATIENCE);
    post({ t: "press", name, values }, (answer) => {
      clearTimeout(slow);
      source?.removeAttribute("aria-busy");
      if (answer.error) fail(answer.error);
      else fail("");
      then?.(answer);
    });
  };

  /** @param {string} words shown above the composer, or above everything in a view without one */
  const fail = (words) => {
    let strip = /** @type {HTMLElement | null} */ (root.querySelector(".sag-failed"));
    if (!strip) {
      if (!words) return;
      strip = document.createElement("div");
      strip.className = "sag-failed";
      strip.setAttribute("role", "alert");
      frame()?.append(strip);
    }
    strip.textContent = words;
    strip.hidden = !words;
  };

  const send = () => {
    const input = textarea();
    const text = input?.value.trim() ? input.value : "";
    if (!input || !text) return;
    input.value = "";
    grow();
    // Stop is there from this moment on: waiting for the kernel's word would be too late to stop anything.
    frame()?.setAttribute("data-sent", "");
    toEnd();
    press("send", { text }, root.querySelector(".sag-send") ?? undefined, ({ error }) => {
      if (!error) return;
      frame()?.removeAttribute("data-sent");
      input.value = input.value ? `${text}\n${input.value}` : text;
      grow();
    });
  };

  const grow = () => {
    const input = textarea();
    if (!input || CSS.supports("field-sizing", "content")) return;
    input.style.height = "auto";
    input.style.height = `${Math.min(input.scrollHeight, 190)}px`;
  };

  root.addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  }, listen);

  root.addEventListener("click", (event) => {
    const target = /** @type {Element} */ (event.target);
    const tab = /** @type {HTMLElement | null} */ (target.closest("[role=tab]"));
    if (tab) return choose(tab);
    if (target.closest("[data-do=latest]")) return toEnd();
    const button = /** @type {HTMLElement | null} */ (target.closest("button[data-press]"));
    if (!button || button.getAttribute("aria-busy") === "true") return;
    const { press: name, ...rest } = button.dataset;
    press(name ?? "", JSON.parse(rest.values ?? "{}"), button);
  }, listen);

  /** @param {HTMLElement} tab */
  const choose = (tab) => {
    frame()?.setAttribute("data-tab", tab.dataset.tab ?? "");
    for (const each of root.querySelectorAll("[role=tab]")) {
      each.setAttribute("aria-selected", String(each === tab));
      each.setAttribute("tabindex", each === tab ? "0" : "-1");
    }
    tab.focus();
  };

  // toggle does not bubble, so it is caught on the way down.
  root.addEventListener("toggle", (event) => {
    const fold = /** @type {HTMLDetailsElement} */ (event.target);
    if (fold.dataset?.ask) press(fold.dataset.ask, { cell: fold.dataset.cell ?? "", open: fold.open });
  }, { capture: true, signal: stop.signal });

  root.addEventListener("scroll", (event) => {
    const list = log();
    if (!list || event.target !== list) return;
    atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 28;
    if (atEnd) list.removeAttribute("data-new");
  }, { capture: true, passive: true, signal: stop.signal });

  root.addEventListener("input", grow, listen);

  root.addEventListener("keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (target.matches(".sag-composer textarea")) {
      // Jupyter reads keys on the document before we do and skips what stands under this attribute. While Control
      // or Command is down it may read them: saving must work from here too.
      if (event.key === "Control" || event.key === "Meta") target.removeAttribute("data-lm-suppress-shortcuts");
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing && event.keyCode !== 229) {
        event.preventDefault();
        send();
      }
      if (!(event.ctrlKey || event.metaKey) || event.key === "Enter") event.stopPropagation();
      return;
    }
    if (target.matches("[role=tab]")) {
      const tabs = /** @type {HTMLElement[]} */ ([...root.querySelectorAll("[role=tab]")]).filter((each) => each.offsetParent);
      const place = tabs.indexOf(target);
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) choose(tabs[(place + step + tabs.length) % tabs.length]);
    }
    if (!(event.ctrlKey || event.metaKey)) event.stopPropagation();
  }, listen);
  const suppressAgain = () => textarea()?.setAttribute("data-lm-suppress-shortcuts", "true");
  root.addEventListener("keyup", (event) => {
    if (event.key === "Control" || event.key === "Meta") suppressAgain();
  }, listen);
  root.addEventListener("focusout", suppressAgain, listen);

  // Pointing at a layer shows where else it acts.
  root.addEventListener("pointerover", (event) => {
    const name = /** @type {Element} */ (event.target).closest?.(".sag-cell")?.getAttribute("data-mw");
    for (const cell of root.querySelectorAll(".sag-cell")) {
      if (name && cell.getAttribute("data-mw") === name) cell.setAttribute("data-peer", "");
      else if (cell.hasAttribute("data-peer")) cell.removeAttribute("data-peer");
    }
  }, listen);

  // -- begin ------------------------------------------------------------------------------------

  model.on("msg:custom", receive);
  model.on("change:snapshot", fromTrait);
  fromTrait();
  askSnapshot();
  return () => {
    clearInterval(joining);
    clearTimeout(lights.timer);
    observer.disconnect();
    sizes.disconnect();
    stop.abort();
    model.off("msg:custom", receive);
    model.off("change:snapshot", fromTrait);
    if (visible.size) {
      visible.clear();
      tell();
    }
  };
}

/** @param {RenderProps} props */
function render(props) {
  return props.model.get("role") === "wire" ? renderWire(props) : renderScreen(props);
}

export default { render };
