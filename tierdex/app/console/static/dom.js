// Elements from code. Text is always a text node: nothing that a server or a user wrote becomes markup.

const SVG = "http://www.w3.org/2000/svg";

/** Return an HTML element. `attributes.on` maps event names to listeners; null values are left out. */
export function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Return an SVG element; as `element`. */
export function shape(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Return the one element of the page with this id. */
export function byId(id) {
  return document.getElementById(id);
}

/** Replace what a node holds, again and again: focus and scrolling stay with the elements of the same id. */
export function redraw(node, ...children) {
  const focused = node.contains(document.activeElement) ? document.activeElement.id : "";
  const scrolled = [...node.querySelectorAll("[id]")].filter((each) => each.scrollTop || each.scrollLeft)
    .map(({ id, scrollTop, scrollLeft }) => ({ id, scrollTop, scrollLeft }));
  node.replaceChildren(...children);
  for (const { id, ...place } of scrolled) Object.assign(byId(id) ?? {}, place);
  if (focused) byId(focused)?.focus({ preventScroll: true });
}

/** Put a message into a note element, or hide it when there is none. */
export function showNote(note, text) {
  note.hidden = !text;
  note.textContent = text ?? "";
}

/** Say below a field what is wrong with it, and mark the field; nothing to say takes both back. */
export function showFieldError(input, text) {
  const id = `${input.id}-error`;
  byId(id)?.remove();
  input.removeAttribute("aria-invalid");
  input.removeAttribute("aria-errormessage");
  if (!text) return;
  input.setAttribute("aria-invalid", "true");
  input.setAttribute("aria-errormessage", id);
  input.closest(".field").append(element("span", { id, class: "field-error", role: "alert" }, text));
}

/** Copy a text and say so on the button. Also where browsers allow no clipboard: on plain http. */
export async function copyText(button, text) {
  const label = button.textContent;
  button.textContent = (await write(text)) ? "Copied" : "Not copied";
  setTimeout(() => (button.textContent = label), 2000);
}

async function write(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = element("textarea", { class: "hidden-text" });
    area.value = text;
    document.body.append(area);
    area.select();
    const isCopied = document.execCommand("copy");
    area.remove();
    return isCopied;
  }
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else {
      node.setAttribute(name, value === true ? "" : String(value));
    }
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}
