/** Taken before a test fakes timers: what waits here waits in the test's own time. */
const { setImmediate, setTimeout, clearTimeout, performance } = globalThis

/** The usual wait is over within a few turns; one that is not leaves the machine to what it waits for. */
const TURNS = 1000
const PAUSE_MS = 2
/** An assertion that does not hold yet makes an error, with its stack. */
const ASSERTION_PAUSE_MS = 20
/** Far beyond what a busy machine needs; most tests have ended before. In full size, an inbox may have waited long before it tries again. */
const MOST_MS = process.env.TEST_LONG === '1' ? 540_000 : 120_000

/** Resolves once `holds`; looks turn by turn of the event loop, and then every 2 ms. */
export async function until(holds: () => boolean | Promise<boolean>, what: string = String(holds)): Promise<void> {
  const endMs = performance.now() + MOST_MS
  for (let looks = 0; !(await holds()); looks++) {
    if (performance.now() > endMs) throw new Error(`never came: ${what}`)
    await new Promise<void>(resolve => {
      if (looks < TURNS) setImmediate(resolve)
      else setTimeout(resolve, PAUSE_MS)
    })
  }
}

/** Resolves once the assertion holds; in the end it throws what the assertion threw last. */
export async function eventually(assertion: () => unknown, pauseMs: number = ASSERTION_PAUSE_MS): Promise<void> {
  for (const endMs = performance.now() + MOST_MS; ; ) {
    try {
      await assertion()
      return
    } catch (error) {
      if (performance.now() > endMs) throw error
    }
    await new Promise<void>(resolve => setTimeout(resolve, pauseMs))
  }
}

/** What comes, or an error that names it if it never does. */
export async function arrival<T>(coming: Promise<T>, what: string, mostMs: number = MOST_MS): Promise<T> {
  const never = Promise.withResolvers<never>()
  const timer = setTimeout(() => never.reject(new Error(`never came: ${what}`)), mostMs)
  timer.unref()
  try {
    return await Promise.race([coming, never.promise])
  } finally {
    clearTimeout(timer)
  }
}
