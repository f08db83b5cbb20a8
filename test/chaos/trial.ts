/** One row of the table on one path: a deployment, its traffic, and the fault so many times. */
import { setTimeout as wait } from 'node:timers/promises'
import { Deployment } from './deployment/deployment.ts'
import type { Row } from './rows.ts'
import { type Account, Ledger } from './traffic/ledger.ts'
import { Traffic } from './traffic/traffic.ts'

export interface TrialSize {
  readonly times: number
  /** At least so many, over the whole trial. */
  readonly requests: number
  readonly requestsPerSecond: number
  readonly roundTripMs: number
  readonly downloadBytes: number
}

const CALLERS_PER_RUNTIME = 40
/** A download lasts this long where nothing holds it up: within the grace, like the short streams. */
const DOWNLOAD_S = 4
const STREAM_LIFE_MS = 2000
const LOOK_MS = 50

/** Runs the row; the account begins with the traffic and ends when everything sent has ended. */
export async function runTrial(row: Row, size: TrialSize, stop: AbortSignal): Promise<Account> {
  const ledger = new Ledger(row.name)
  const { servers, grace } = row
  const { roundTripMs } = size
  const timing = { roundTripMs, grace, pingInterval: '1s', pingTimeout: '2s' }
  const deployment = await Deployment.start({ servers, ...timing }, ledger)
  try {
    const traffic = new Traffic({
      upstreams: deployment.upstreams,
      placeOf: runtime => deployment.placeOf(runtime),
      ledger,
      requestsPerSecond: size.requestsPerSecond,
      callersPerRuntime: CALLERS_PER_RUNTIME,
      ...lasting(row, size),
      endless: true,
    })
    const sent = (count: number) => until(() => ledger.total.requests >= count, stop)
    for (let turn = 0; turn < size.times; turn++) {
      await sent((size.requests * (turn + 0.5)) / size.times)
      if (stop.aborted) break
      await row.fault(deployment, turn)
    }
    await sent(size.requests)
    await traffic.stop()
    return ledger.total
  } finally {
    await deployment.stop()
  }
}

/** Where the grace is short, so are the streams. */
function lasting(row: Row, size: TrialSize) {
  if (row.grace === '1s') return { download: undefined, streamLifeMs: 500 }
  const download = { bytes: size.downloadBytes, bytesPerSecond: size.downloadBytes / DOWNLOAD_S }
  return { download, streamLifeMs: STREAM_LIFE_MS }
}

async function until(holds: () => boolean, stop: AbortSignal): Promise<void> {
  while (!holds() && !stop.aborted) await wait(LOOK_MS)
}
