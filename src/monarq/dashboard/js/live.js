/* One stream of events for the page that is shown; polling where there can be none.

   States: "live" (events come), "polling" (the broker answers, but gives no stream), "connecting"
   and "offline" (it does not answer). The stream is closed while nobody looks at the page. */

import { address } from "./api.js";

const SILENT_MS = 40_000;
const POLL_MS = 5_000;
const FIRST_RETRY_MS = 500;
const LONGEST_RETRY_MS = 5_000;
const STREAM_RETRY_MS = 30_000;
const CONNECT_MS = 10_000;

export class Live {
  #source = null;
  #topics = {};
  #query = {};
  #retry = FIRST_RETRY_MS;
  #timers = new Map();
  #heard = false;

  /** `probe()` asks the broker for anything and rejects if it cannot; `healed()` after a time
      without events; `changed(state)`; `event(topic, data)`. */
  constructor({ probe, healed, changed, event }) {
    this.state = "connecting";
    this.probe = probe;
    this.healed = healed;
    this.changed = changed;
    this.event = event;
    document.addEventListener("visibilitychange", () => this.#look());
    window.addEventListener("online", () => this.#again(0));
    window.addEventListener("offline", () => this.#lost());
    window.addEventListener("pagehide", () => this.#close());
    window.addEventListener("pageshow", (event) => event.persisted && this.#look());
  }

  /** Follows these topics from now on; `query` says of what (`queue`, `item`). */
  follow(topics, query) {
    const same =
      this.#source &&
      JSON.stringify([topics, query]) === JSON.stringify([this.#topics, this.#query]);
    this.#topics = topics;
    this.#query = query;
    if (!same) this.#open();
  }

  stop() {
    this.#close();
    this.#topics = [];
  }

  #look() {
    if (document.hidden) this.#close();
    else {
      this.healed();
      this.#open();
    }
  }

  #set(state) {
    if (this.state === state) return;
    const away = this.state === "offline" || this.state === "polling";
    this.state = state;
    this.changed(state);
    if (state === "live" && away) this.healed();
  }

  #timer(name, ms, action) {
    clearTimeout(this.#timers.get(name));
    this.#timers.set(name, setTimeout(action, ms));
  }

  #close() {
    for (const timer of this.#timers.values()) clearTimeout(timer);
    this.#timers.clear();
    this.#source?.close();
    this.#source = null;
  }

  #open() {
    this.#close();
    if (document.hidden || !this.#topics.length) return;
    this.#heard = false;
    const source = new EventSource(
      address("events", { topics: this.#topics.join(","), ...this.#query }),
    );
    this.#source = source;
    const hear = (handler) => (message) => {
      if (source !== this.#source) return;
      this.#heard = true;
      this.#timer("silence", SILENT_MS, () => this.#failed());
      handler(message);
    };
    source.addEventListener(
      "hello",
      hear((message) => {
        this.#retry = FIRST_RETRY_MS;
        this.#set("live");
        this.event("hello", JSON.parse(message.data));
      }),
    );
    source.addEventListener(
      "tick",
      hear(() => {}),
    );
    source.addEventListener(
      "bye",
      hear(() => this.#failed()),
    );
    for (const topic of this.#topics) {
      source.addEventListener(
        topic,
        hear((message) => this.event(topic, JSON.parse(message.data))),
      );
    }
    source.onerror = () => source === this.#source && this.#failed();
    this.#timer("silence", CONNECT_MS, () => this.#failed());
  }

  // The stream broke, or was refused: is the broker there?
  async #failed() {
    const heard = this.#heard;
    this.#close();
    this.#set(heard ? "connecting" : this.state);
    try {
      await this.probe();
    } catch (error) {
      if (error.unreachable) this.#lost();
      else this.#again(STREAM_RETRY_MS);
      return;
    }
    if (heard) this.#again(this.#retry);
    else this.#poll(STREAM_RETRY_MS);
  }

  #lost() {
    this.#close();
    this.#set("offline");
    this.#again(this.#retry);
    this.#retry = Math.min(LONGEST_RETRY_MS, this.#retry * 2);
  }

  #again(ms) {
    if (!document.hidden) this.#timer("open", ms, () => this.#open());
  }

  #poll(until) {
    if (this.#source) return;
    this.#set("polling");
    this.healed();
    if (until <= 0) this.#again(0);
    else this.#timer("poll", POLL_MS, () => this.#pollAgain(until - POLL_MS));
  }

  async #pollAgain(until) {
    try {
      await this.probe();
      this.#poll(until);
    } catch (error) {
      if (error.unreachable) this.#lost();
      else this.#again(STREAM_RETRY_MS);
    }
  }
}
