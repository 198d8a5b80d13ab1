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

/** Put a message into a note element, or hide it when there is none. */
export function showNote(note, text) {
  note.hidden = !text;
  note.textContent = text ?? "";
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
