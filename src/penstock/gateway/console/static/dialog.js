// Questions in a dialog: a form, what went wrong in it, and nothing done until it is sent.

import { h, replace, uniqueId } from "./dom.js";

// `submit(form)` does it; when it throws, the dialog stays and says why. `isDangerous` marks the button.
export function ask({ title, body, action, submit, isDangerous = false, opened = () => {} }) {
  const id = uniqueId();
  const trouble = h("div", { role: "alert" });
  const button = h("button", { type: "submit", class: isDangerous ? "danger" : "primary" }, action);
  const cancel = h("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
  const form = h("form", { method: "dialog" }, h("h2", { id }, title), body, trouble, h("div", { class: "row end" }, cancel, button));
  const dialog = h("dialog", { "aria-labelledby": id, onclose: () => dialog.remove() }, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    button.classList.add("busy");
    replace(trouble);
    try {
      const stays = await submit(form, { setAction: (text) => { button.textContent = text; } });
      if (!stays) dialog.close();
    } catch (failure) {
      replace(trouble, h("div", { class: "note bad" }, failure.message));
    } finally {
      button.disabled = false;
      button.classList.remove("busy");
    }
  });
  document.body.append(dialog);
  dialog.showModal();
  opened(dialog);
  return dialog;
}

// For what cannot be undone: the name has to be typed.
export function confirmByName({ title, text, name, action, submit }) {
  const typed = h("input", { required: true, autocomplete: "off", spellcheck: "false", "aria-label": `Type ${name} to confirm` });
  return ask({
    title, action, isDangerous: true,
    body: [h("p", {}, text), h("p", { class: "soft" }, "Type ", h("code", {}, name), " to confirm."), typed],
    submit: async () => {
      if (typed.value !== name) throw new Error("The name is not the same.");
      await submit();
    },
  });
}
