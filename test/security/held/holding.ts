/** What a process with the probe in it holds. */
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import type { Part } from '../../../cli/demo/parts.ts'
import { until } from '../../support/until.ts'

export interface Holding {
  /** Bytes on the heap and in buffers outside it, after a collection. */
  readonly live: number
  /** Bytes in the ledgers. */
  readonly counted: number
  /** How often it has read from a socket. */
  readonly reads: number
}

export function probeOf(pid: number): string {
  return join(tmpdir(), `sallyport-held-${pid}.sock`)
}

async function holdingOf({ pid }: Part): Promise<Holding> {
  return JSON.parse(await text(connect(probeOf(pid!))))
}

const PAUSE_MS = 150
/** How many looks in a row see the same. On a busy machine, one more proves little: the process may just not run. */
const EQUAL_LOOKS = 3
/** What a process may gain or lose while nothing happens. */
const STILL_BYTES = 1024 * 1024

/** Resolves once nothing counts that outsiders have left behind, which a process may notice late. */
export function atRest(part: Part): Promise<void> {
  return until(async () => (await holdingOf(part)).counted === 0)
}

/** Resolves with what a process holds once neither that nor `sent`, what it is sent meanwhile, changes any more, and it reads nothing. */
export async function settled(part: Part, sent: () => number = () => 0): Promise<Holding> {
  const look = async () => ({ ...(await holdingOf(part)), sent: sent() })
  let last = await look()
  for (let equal = 1; equal < EQUAL_LOOKS; ) {
    await new Promise(resolve => setTimeout(resolve, PAUSE_MS))
    const now = await look()
    const isSame = now.counted === last.counted && now.sent === last.sent && now.reads === last.reads
    equal = isSame && Math.abs(now.live - last.live) < STILL_BYTES ? equal + 1 : 1
    last = now
  }
  return last
}
