// Names that a mistyped one may have meant.

const NAMES_TOLD = 5;

/** Return at most five of `names` that are near to `name`, nearest first: other case, spaces, slips, beginnings. */
export function nearNames(name, names) {
  const wanted = fold(name);
  const slips = Math.max(Math.min(1, wanted.length - 1), Math.floor(wanted.length / 3));
  return names
    .map((one) => ({ one, distance: distance(wanted, fold(one), slips) }))
    .filter((found) => found.distance < Infinity)
    .sort((a, b) => a.distance - b.distance || (a.one < b.one ? -1 : 1))
    .slice(0, NAMES_TOLD)
    .map((found) => found.one);
}

function fold(name) {
  return name.trim().toLowerCase();
}

/** Count the slips between two names, where a longer name that begins with the other is one; beyond `most`: Infinity. */
function distance(one, other, most) {
  if (one === other) return 0;
  if (one && other && (one.startsWith(other) || other.startsWith(one))) return 1;
  if (Math.abs(one.length - other.length) > most) return Infinity;
  const slips = editDistance(one, other);
  return slips <= most ? slips : Infinity;
}

/** Count the characters to insert, remove, replace or swap with their neighbours. */
function editDistance(one, other) {
  let before = [];
  let last = Array.from({ length: other.length + 1 }, (_, column) => column);
  for (let row = 1; row <= one.length; row += 1) {
    const line = [row];
    for (let column = 1; column <= other.length; column += 1) {
      const same = one[row - 1] === other[column - 1];
      const swapped = row > 1 && column > 1 && one[row - 1] === other[column - 2] && one[row - 2] === other[column - 1];
      line[column] = Math.min(
        last[column] + 1, line[column - 1] + 1, last[column - 1] + (same ? 0 : 1),
        swapped ? before[column - 2] + 1 : Infinity,
      );
    }
    [before, last] = [last, line];
  }
  return last[other.length];
}
