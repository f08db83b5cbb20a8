/** Finds the known word that a mistyped one most likely means. */

/** Undefined if no word is near enough: at most 2 edits, or 1 for words of up to 4 letters. */
export function nearest(word: string, known: Iterable<string>): string | undefined {
  let best: string | undefined
  let least = word.length <= 4 ? 2 : 3
  for (const candidate of known) {
    const edits = distance(word.toLowerCase(), candidate.toLowerCase(), least)
    if (edits < least) {
      least = edits
      best = candidate
    }
  }
  return best
}

/** Edits (insert, delete, replace, swap of neighbours) between two words; `limit` if there are that many or more. */
function distance(a: string, b: string, limit: number): number {
  if (Math.abs(a.length - b.length) >= limit) return limit
  let beforeLast: number[] = []
  let last = Array.from({ length: b.length + 1 }, (_, j) => j)
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1]
      let edits = Math.min(last[j]! + 1, row[j - 1]! + 1, last[j - 1]! + (same ? 0 : 1))
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      if (swapped) edits = Math.min(edits, beforeLast[j - 2]! + 1)
      row.push(edits)
    }
    beforeLast = last
    last = row
  }
  return Math.min(last[b.length]!, limit)
}
