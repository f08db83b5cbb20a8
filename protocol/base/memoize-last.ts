/** Remembers the last result of `make` and its arguments. The next request is often like the previous one. */
export function memoizeLast<Args extends readonly [a: unknown, b?: unknown, c?: unknown]>(
  make: (...args: Args) => string,
): (...args: Args) => string {
  // Plain parameters, since rest parameters would allocate an array per call.
  const plain = make as unknown as (a: unknown, b: unknown, c: unknown) => string
  let text: string | undefined
  let lastA: unknown
  let lastB: unknown
  let lastC: unknown
  const memoized = (a: unknown, b: unknown, c: unknown) => {
    if (text === undefined || a !== lastA || b !== lastB || c !== lastC) {
      text = plain(a, b, c)
      lastA = a
      lastB = b
      lastC = c
    }
    return text
  }
  return memoized as unknown as (...args: Args) => string
}
