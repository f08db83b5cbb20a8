/** Remembers the last result of `make` and its arguments. The next request is often like the previous one. */
export function memoizeLast<A, B, C>(make: (a: A, b: B, c: C) => string): (a: A, b: B, c: C) => string {
  let text: string | undefined
  let lastA: A
  let lastB: B
  let lastC: C
  return (a, b, c) => {
    if (text === undefined || a !== lastA || b !== lastB || c !== lastC) {
      text = make(a, b, c)
      lastA = a
      lastB = b
      lastC = c
    }
    return text
  }
}
