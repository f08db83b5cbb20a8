/** One row of the table on one path: a deployment, its traffic, and the fault, repeated. */
import { slowness } from '../support/busy.ts'
import { Deployment, type DeploymentOptions } from './deployment/deployment.ts'
import type { Random } from './random.ts'
import type { TrialRow } from './rows.ts'
import { unlessStopped, until } from './stop.ts'
import { type Account, Ledger } from './traffic/ledger.ts'
import { Traffic, type TrafficOptions } from './traffic/traffic.ts'

export interface TrialSize {
  readonly times: number
  /** At least this many, over the whole trial. */
  readonly requests: number
  readonly requestsPerSecond: number
  readonly roundTripMs: number
  readonly downloadBytes: number
  /** How long a part that is asked to stop may take for its exchanges, on a machine that is not busy. */
  readonly graceS: number
}

/** The defaults, so that a busy machine is not mistaken for a dead peer. */
const PINGS = { pingInterval: '10s', pingTimeout: '15s' } as const
/** For rows in which peers go silent, so that the test does not wait long for that to be noticed. */
export function quickPings(pace: number): Pick<DeploymentOptions, 'pingInterval' | 'pingTimeout'> {
  return { pingInterval: '1s', pingTimeout: `${Math.ceil(4 * pace)}s` }
}
const CALLERS_PER_RUNTIME = 40

/** Runs the row. The account begins with the traffic and ends when everything that was sent has ended. */
export async function runTrial(row: TrialRow, size: TrialSize, random: Random, stop: AbortSignal): Promise<Account> {
  const usualGraceS = row.graceS ?? size.graceS
  const pace = slowness()
  const graceS = Math.ceil(pace * usualGraceS)
  const ledger = new Ledger(row.name, graceS * 1000)
  const { roundTripMs, requestsPerSecond } = size
  const pings = row.silent === true ? quickPings(pace) : PINGS
  const { servers, proxy, keepsSockets } = row
  const options = { servers, proxy, keepsSockets, roundTripMs, graceS, pace, ...pings }
  const deployment = await Deployment.start(options, ledger)
  try {
    const traffic = new Traffic({
      upstreams: deployment.upstreams,
      placeOf: runtime => deployment.placeOf(runtime),
      ledger,
      requestsPerSecond,
      callersPerRuntime: CALLERS_PER_RUNTIME,
      // A server that is alone accepts new exchanges for half of its grace.
      ...lasting(row.alone === true ? usualGraceS / 2 : usualGraceS, size.downloadBytes),
    })
    const sent = (count: number) => until(() => ledger.total.requests >= count, stop)
    for (let turn = 0; turn < size.times; turn++) {
      await sent((size.requests * (turn + 0.5)) / size.times)
      await unlessStopped(row.fault(deployment, turn, random), stop)
    }
    await sent(size.requests)
    await unlessStopped(traffic.stop(), stop)
    ledger.total.notes.push(...deployment.notes)
    return ledger.total
  } finally {
    await deployment.stop()
  }
}

/**
 * Downloads and short streams last for a fraction of the grace: a session takes exchanges for a good half of it, and tells streams to end
 * before it is over. A short grace leaves no time for downloads.
 */
export function lasting(graceS: number, bytes: number): Pick<TrafficOptions, 'download' | 'streamLifeMs' | 'endless'> {
  const download = graceS <= 4 ? undefined : { bytes, bytesPerSecond: (4 * bytes) / graceS }
  return { download, streamLifeMs: 125 * graceS, endless: true }
}
