// A drag across a drawing: from where to where.

const LEAST = 5; // pixels; less is a click

/** Call `onMove(from, to)` while the pointer drags across `node`, `onEnd(from, to)` then: pixels from its left, in order. */
export function watchDrag(node, { from = 0, onMove, onEnd }) {
  let start = null;
  const at = (event) => event.clientX - node.getBoundingClientRect().left;
  const span = (event) => [start, at(event)].sort((a, b) => a - b);
  const isDrag = (event) => start !== null && Math.abs(at(event) - start) > LEAST;
  node.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || at(event) <= (typeof from === "function" ? from() : from)) return;
    start = at(event);
    node.setPointerCapture(event.pointerId); // it may end outside
  });
  node.addEventListener("pointermove", (event) => isDrag(event) && onMove(...span(event)));
  node.addEventListener("pointerup", (event) => {
    if (isDrag(event)) onEnd(...span(event));
    start = null;
  });
  node.addEventListener("pointercancel", () => (start = null));
}
