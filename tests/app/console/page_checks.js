// What a reader without a mouse, or with weak eyes, meets on the page that is open: for test_every_page.py.

() => {
  const parse = (text) => {
    const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
    return { r, g, b, a };
  };
  const over = (top, below) => {
    const mix = (one, other) => one * top.a + other * (1 - top.a);
    return { r: mix(top.r, below.r), g: mix(top.g, below.g), b: mix(top.b, below.b), a: 1 };
  };
  const luminance = ({ r, g, b }) => {
    const [red, green, blue] = [r, g, b].map((each) => {
      const part = each / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const contrast = (one, other) => {
    const [light, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a);
    return (light + 0.05) / (dark + 0.05);
  };
  /** Return what lies behind an element's text: backgrounds from the root on, and how opaque it is itself. */
  const ground = (element) => {
    const chain = [];
    for (let each = element; each; each = each.parentElement) chain.unshift(each);
    let colour = { r: 255, g: 255, b: 255, a: 1 };
    for (const each of chain) colour = over(parse(getComputedStyle(each).backgroundColor), colour);
    return colour;
  };
  const opacity = (element) => {
    let product = 1;
    for (let each = element; each; each = each.parentElement) product *= Number(getComputedStyle(each).opacity);
    return product;
  };
  const isSeen = (element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true })
    && !element.closest(".hidden-text, .skip:not(:focus), .picker") && element.getBoundingClientRect().width > 0;
  const nameOf = (element) => `${element.tagName.toLowerCase()}${element.id ? `#${element.id}` : ""}.${element.getAttribute("class") ?? ""} “${(element.getAttribute("aria-label") ?? element.textContent ?? "").trim().slice(0, 40)}”`;

  window.pageChecks = {
    /** Texts whose contrast with what lies behind them is below 4.5, with the contrast. */
    faint() {
      const found = new Map();
      const check = (element, colour) => {
        const behind = ground(element);
        const text = parse(colour);
        const ratio = contrast(over({ ...text, a: text.a * opacity(element) }, behind), behind);
        if (ratio < 4.5) found.set(`${nameOf(element)} ${ratio.toFixed(2)}`, ratio);
      };
      const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
      for (let node = texts.nextNode(); node; node = texts.nextNode()) {
        const element = node.parentElement;
        if (!node.textContent.trim() || !isSeen(element) || element.closest(":disabled, option, datalist, script")) continue;
        check(element, element.closest("svg") ? getComputedStyle(element).fill : getComputedStyle(element).color);
      }
      for (const input of document.querySelectorAll("input, select")) {
        if (!isSeen(input) || input.type === "checkbox") continue;
        check(input, getComputedStyle(input).color);
        if (input.placeholder) check(input, getComputedStyle(input, "::placeholder").color);
      }
      return [...found.keys()];
    },
    /** How far the page is wider than the window, and what sticks out. */
    wide() {
      const excess = document.documentElement.scrollWidth - innerWidth;
      if (excess <= 0) return [];
      return [...document.body.querySelectorAll("*")].filter((each) => isSeen(each) && each.getBoundingClientRect().right > innerWidth + 1).slice(0, 5).map(nameOf);
    },
    /** Labels of time axes that lie over the one before, or are cut off. */
    crowded() {
      const axes = [[".ticks", "span"], [".chart-axis", "text"]];
      return axes.flatMap(([axis, label]) => [...document.querySelectorAll(axis)].filter(isSeen).flatMap((each) => {
        const { left, right } = each.getBoundingClientRect();
        const boxes = [...each.querySelectorAll(label)].filter(isSeen).map((one) => [one, one.getBoundingClientRect()]);
        const ends = [left, ...boxes.map(([, box]) => box.right)];
        return boxes.filter(([, box], place) => box.left < ends[place] - 0.5 || box.right > right + 0.5).map(([one]) => nameOf(one));
      }));
    },
    /** Return how often to press Tab to reach all that must be; from now on `visited` takes note of the focus. */
    watch() {
      const isStop = (each) => each.tabIndex >= 0 && !each.disabled && isSeen(each);
      this.stops = [...document.querySelectorAll("a[href], button, input, select, summary, [tabindex]")].filter(isStop);
      this.visited = [];
      document.addEventListener("focusin", ({ target }) => {
        const { outlineStyle, outlineWidth, outlineColor } = getComputedStyle(target);
        const box = target.getBoundingClientRect();
        this.visited.push({
          target, isMarked: outlineStyle !== "none" && parseFloat(outlineWidth) >= 2 && contrast(parse(outlineColor), ground(target.parentElement)) >= 3,
          isInSight: box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
        });
      }, { signal: (this.watching = new AbortController()).signal });
      document.getElementById("skip").focus();
      const scrolls = (each) => ["auto", "scroll"].includes(getComputedStyle(each).overflowY) && each.scrollHeight > each.clientHeight;
      return this.stops.length + [...document.querySelectorAll("main *")].filter((each) => isSeen(each) && scrolls(each)).length; // those are stops of the browser's own
    },
    /** What was wrong on the way of the Tab key through the page since `watch`. */
    walked() {
      this.watching.abort();
      const visited = this.visited.map(({ target }) => target);
      const order = visited.filter((each) => this.stops.includes(each)).slice(0, this.stops.length);
      const wrong = [];
      for (const each of this.stops) if (!visited.includes(each)) wrong.push(`never reached: ${nameOf(each)}`);
      if (!wrong.length && order.some((each, place) => each !== this.stops[place])) wrong.push("not in the order of the page");
      for (const { target, isMarked, isInSight } of this.visited) {
        if (target === document.body) continue;
        if (!isMarked) wrong.push(`focus is not to be seen: ${nameOf(target)}`);
        if (!isInSight) wrong.push(`focus is out of sight: ${nameOf(target)}`);
      }
      return wrong;
    },
  };
}
