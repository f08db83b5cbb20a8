/** Checks that Kubernetes or systemd waits for as long as a drain may take. */
import { formatDuration } from '../../protocol/base/durations.ts'
import type { Probe } from '../../protocol/base/probe.ts'

interface DrainSettings {
  readonly grace: number
  /** Only servers have it. */
  readonly 'drain-delay'?: number
}

/** Time for what happens before the drain (`preStop`) and for the exit itself. */
const SPARE_MS = 10_000

export function probeStop(config: DrainSettings, givenMs: number): Probe {
  const { grace, 'drain-delay': delay = 0 } = config
  const needed = grace + delay
  const parts = delay > 0 ? '--drain-delay and --grace' : '--grace'
  const about = {
    code: 'stop',
    what: `${parts}: ${formatDuration(needed)}`,
    found: `it has ${formatDuration(givenMs)}`,
  }
  const expected = `at least ${formatDuration(needed + SPARE_MS)}, including what comes before and after`
  if (givenMs >= needed + SPARE_MS) return { ...about, status: 'ok', expected, hint: '' }
  const hint =
    'Raise terminationGracePeriodSeconds (systemd: TimeoutStopSec), or lower --grace. Otherwise requests are cut.'
  return { ...about, status: givenMs < needed ? 'fail' : 'warn', expected, hint }
}
