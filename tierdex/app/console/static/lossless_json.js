// JSON to values, with every integer exact.
//
// JSON.parse rounds integers beyond 2^53, and offsets and times are int64. Here such integers become
// BigInt and all others stay Number; strings, objects and arrays are as usual. Objects have no
// prototype, so that a key named "__proto__" is only a key.

const TOKEN =
  /[ \t\n\r]*(?:([{}[\],:])|("(?:[^"\\]|\\.)*")|(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)|(true|false|null))/y;
const INTEGER = /^-?\d+$/;
const WORDS = { true: true, false: false, null: null };

/** Return the value of a JSON text. Throws SyntaxError naming the position. */
export function parseJson(text) {
  const reader = new Reader(text);
  const value = readValue(reader, reader.next());
  reader.end();
  return value;
}

/** Return the number of a JSON number's text: a BigInt when a Number would round it. */
export function parseNumber(source) {
  const number = Number(source);
  return INTEGER.test(source) && !Number.isSafeInteger(number) ? BigInt(source) : number;
}

/** Return the JSON text of a value, set out in lines; a BigInt is written as the integer that it is. */
export function writeJson(value, line = "\n") {
  if (typeof value === "bigint") return String(value);
  if (value === null || typeof value !== "object") return JSON.stringify(value ?? null);
  const inner = `${line}  `;
  const parts = Array.isArray(value)
    ? value.map((each) => writeJson(each, inner))
    : Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${writeJson(each, inner)}`);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  return parts.length ? `${open}${inner}${parts.join(`,${inner}`)}${line}${close}` : open + close;
}

class Reader {
  constructor(text) {
    this.text = text;
    this.position = 0;
  }

  /** Return the next token as {mark, string, number, word}; exactly one is set. */
  next() {
    TOKEN.lastIndex = this.position;
    const match = TOKEN.exec(this.text);
    if (!match) this.fail();
    this.position = TOKEN.lastIndex;
    return { mark: match[1], string: match[2], number: match[3], word: match[4] };
  }

  end() {
    if (this.text.slice(this.position).trim() !== "") this.fail();
  }

  fail() {
    throw new SyntaxError(`the answer is not JSON at character ${this.position}`);
  }
}

function readValue(reader, token) {
  if (token.string !== undefined) return JSON.parse(token.string);
  if (token.number !== undefined) return parseNumber(token.number);
  if (token.word !== undefined) return WORDS[token.word];
  if (token.mark === "{") return readObject(reader);
  if (token.mark === "[") return readArray(reader);
  return reader.fail();
}

function readObject(reader) {
  const object = Object.create(null);
  let token = reader.next();
  if (token.mark === "}") return object;
  for (;;) {
    if (token.string === undefined || reader.next().mark !== ":") reader.fail();
    object[JSON.parse(token.string)] = readValue(reader, reader.next());
    const { mark } = reader.next();
    if (mark === "}") return object;
    if (mark !== ",") reader.fail();
    token = reader.next();
  }
}

function readArray(reader) {
  const array = [];
  let token = reader.next();
  if (token.mark === "]") return array;
  for (;;) {
    array.push(readValue(reader, token));
    const { mark } = reader.next();
    if (mark === "]") return array;
    if (mark !== ",") reader.fail();
    token = reader.next();
  }
}
