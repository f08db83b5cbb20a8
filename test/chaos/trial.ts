/** One row of the table on one path: a deployment, its traffic, and the fault so many times. */
import { Deployment } from './deployment/deployment.ts'
import type { Random } from './random.ts'
import type { Row } from './rows.ts'
import { unlessStopped, until } from './stop.ts'
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

/** Runs the row; the account begins with the traffic and ends when everything sent has ended. */
export async function runTrial(row: Row, size: TrialSize, random: Random, stop: AbortSignal): Promise<Account> {
  const ledger = new Ledger(row.name)
  const { servers, grace } = row
  const { roundTripMs, requestsPerSecond } = size
  const deployment = await Deployment.start({ servers, roundTripMs, grace, ...PINGS }, ledger)
  try {
    const traffic = new Traffic({
      upstreams: deployment.upstreams,
      placeOf: runtime => deployment.placeOf(runtime),
      ledger,
      requestsPerSecond,
      callersPerRuntime: CALLERS_PER_RUNTIME,
      ...lasting(row, size),
      endless: true,
    })
    const sent = (count: number) => until(() => ledger.total.requests >= count, stop)
    for (let turn = 0; turn < size.times; turn++) {
      await sent((size.requests * (turn + 0.5)) / size.times)
      await unlessStopped(row.fault(deployment, turn, random), stop)
    }
    await sent(size.requests)
    await unlessStopped(traffic.stop(), stop)
    return ledger.total
  } finally {
    await deployment.stop()
  }
}

export const PINGS = { pingInterval: '1s', pingTimeout: '2s' } as const

/** Where the grace is short, so are the streams. */
function lasting(row: Row, size: TrialSize) {
  if (row.grace === '1s') return { download: undefined, streamLifeMs: 500 }
  const download = { bytes: size.downloadBytes, bytesPerSecond: size.downloadBytes / DOWNLOAD_S }
  return { download, streamLifeMs: STREAM_LIFE_MS }
}
