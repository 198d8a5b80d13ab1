// The dialog that asks for an API key: when the service wants one, or another, and when the user asks for it.

import { ApiError, get, readKey, writeKey } from "./api.js";
import { byId, showFieldError } from "./dom.js";

export class KeyDialog {
  /** `onChange(access)` is called when another key is in use; null: none is. */
  constructor({ onChange }) {
    this.onChange = onChange;
    byId("key-button").addEventListener("click", () => this.open("A key says what you may see here."));
    byId("key-cancel").addEventListener("click", () => byId("key-dialog").close());
    byId("key-forget").addEventListener("click", () => this.#use("", null));
    byId("key-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#try(byId("api-key").value.trim());
    });
  }

  open(reason) {
    byId("key-reason").textContent = reason;
    byId("api-key").value = "";
    byId("key-forget").hidden = !readKey();
    showFieldError(byId("api-key"), null);
    if (!byId("key-dialog").open) byId("key-dialog").showModal();
    byId("api-key").focus();
  }

  /** Use a key if the service knows it; else keep the one before. */
  async #try(key) {
    const before = readKey();
    writeKey(key);
    try {
      this.#use(key, await get("v1/access"));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      writeKey(before);
      showFieldError(byId("api-key"), error.status === 401 ? "This service does not know the key." : error.message);
      byId("api-key").select();
    }
  }

  #use(key, access) {
    writeKey(key);
    byId("key-dialog").close();
    this.onChange(access);
  }
}
