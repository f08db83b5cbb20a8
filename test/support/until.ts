/** Taken before a test fakes timers: what waits here waits in the test's own time. */
const { setImmediate, setTimeout, performance } = globalThis

/** The usual wait is over within a few turns; one that is not leaves the machine to what it waits for. */
const TURNS = 1000
const PAUSE_MS = 2
/** Far beyond what a busy machine needs; most tests have ended before. */
const MOST_MS = 120_000

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
