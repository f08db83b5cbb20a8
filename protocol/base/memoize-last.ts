/** Remembers the last text that `make` made, and its argument. The next request is often like the one before it. */
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
