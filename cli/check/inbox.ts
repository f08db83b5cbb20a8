/** Checks that the server could keep webhooks: whether it can write, how long a write takes to be durable, and the room left. */
import { randomBytes } from 'node:crypto'
import { access, constants, open, rm, statfs } from 'node:fs/promises'
import { dirname } from 'node:path'
import type { Probe } from '../../protocol/base/probe.ts'
import { Ledger } from '../../server/inbox/ledger.ts'
import { checkInboxOptions, type InboxOptions } from '../../server/inbox/options.ts'
import type { PostgresLogin } from '../../server/inbox/postgres-connections.ts'
import { PostgresTrial } from '../../server/inbox/postgres-trial.ts'
import type { Count } from '../../server/inbox/store.ts'
import type { InboxLimits } from '../../server/limits.ts'
import { size } from '../table.ts'
import { type Advice, attempt } from './attempt.ts'

const WRITES = 100
const WRITE_BYTES = 4096
const PATIENCE_MS = 4000
/** Senders wait for the disk. Many webhooks share one write. */
const SLOW_MS = 100
/** PostgreSQL: "insufficient privilege". */
const MAY_NOT = '42501'
/** Most runtimes that are named. */
const MAX_NAMED = 5

export async function probeInbox(options: InboxOptions | undefined): Promise<Probe[]> {
  if (options === undefined) return []
  const { place, limits } = checkInboxOptions(options)!
  const what = `--inbox ${options.url}`
  return place.kind === 'sqlite' ? probeFile(what, place.path, limits) : probePostgres(what, place, limits)
}

async function probeFile(what: string, path: string, limits: InboxLimits): Promise<Probe[]> {
  const least = limits.diskFreeBytes
  const room = { code: 'inbox-room', what: dirname(path), expected: `${size(least)} free` }
  const folder = { hint: 'The folder must exist, and this user must be able to write there, and to the file.', ca: '' }
  const slow = 'Use a local disk whose cache survives power loss.'
  const disk = await probeWrites(what, 'sync', { ...folder, slow }, () => syncP99(path))
  if (disk.status === 'fail') return [disk, notReached(room)]
  const free = attempt(room, folder, async () => {
    const { bavail, bsize } = await statfs(dirname(path))
    const bytes = bavail * bsize
    const found = `${size(bytes)} free`
    if (bytes >= least) return { found }
    return { found, status: 'fail', hint: 'Nothing more is stored: free some space, or lower --inbox.disk-free.' }
  })
  return [disk, await free]
}

const POSTGRES = {
  ca: '--inbox.tls.ca',
  hint: 'Until this is corrected, webhooks that have to be stored get 503, or the server does not start. Check the URL and --inbox.password.file; docs/inbox-operations.md says what PostgreSQL needs.',
}

async function probePostgres(what: string, login: PostgresLogin, limits: InboxLimits): Promise<Probe[]> {
  const about = { code: 'inbox-database', what, expected: 'a PostgreSQL in which an inbox can be kept' }
  const room = { code: 'inbox-room', what, expected: 'room in the quotas' }
  const trial = new PostgresTrial(login)
  let counts: readonly Count[] = []
  try {
    const database = await attempt(about, POSTGRES, async () => {
      counts = await trial.open()
      return { found: 'reached; its user has all rights' }
    })
    if (database.status === 'fail') return [database, notReached(writesOf(what)), notReached(room)]
    const slow = 'PostgreSQL needs a faster disk, or a standby that confirms sooner (synchronous_standby_names).'
    const disk = await probeWrites(what, 'commit', { ...POSTGRES, slow }, () => p99Of(() => trial.commit(WRITE_BYTES)))
    return [database, disk, { ...room, ...roomIn(counts, limits) }]
  } finally {
    trial.close()
  }
}

function writesOf(what: string) {
  return { code: 'inbox-disk', what, expected: `a write is durable within ${SLOW_MS} ms` }
}

async function probeWrites(
  what: string,
  verb: string,
  { slow, ...advice }: Advice & { readonly slow: string },
  p99: () => Promise<number>,
): Promise<Probe> {
  return await attempt(writesOf(what), advice, async () => {
    const ms = await p99().catch((error: Error & { readonly code?: string }) => {
      if (error.code !== MAY_NOT) throw error
    })
    // Servers need no right to write to the log alone.
    if (ms === undefined) return { status: 'skip', found: 'its user may not run pg_logical_emit_message' }
    const found = `${ms.toFixed(1)} ms to ${verb} 4 KiB (p99)`
    return ms > SLOW_MS ? { found, status: 'warn', hint: slow } : { found }
  })
}

function notReached(about: Pick<Probe, 'code' | 'what' | 'expected'>): Probe {
  return { ...about, status: 'skip', found: 'not reached', hint: '' }
}

/** Whether the server would store more webhooks of each runtime. Nobody but PostgreSQL sees how full its disk is. */
function roomIn(counts: readonly Count[], limits: InboxLimits): Pick<Probe, 'status' | 'found' | 'hint'> {
  const ledger = new Ledger(limits)
  ledger.load(counts)
  const runtimes = [...new Set(counts.map(({ runtime }) => runtime))]
  const full = runtimes.filter(runtime => !ledger.hasRoom(runtime))
  const scarce = runtimes.filter(runtime => ledger.isScarce(runtime))
  const found = `${size(ledger.bytes)} of ${size(limits.bytes)} are used`
  const hint = 'See "When it fills" in docs/inbox-operations.md.'
  if (full.length > 0) return { status: 'fail', found: `${found}; no room for ${named(full)}`, hint }
  if (scarce.length > 0) return { status: 'warn', found: `${found}; over half is used for ${named(scarce)}`, hint }
  return { status: 'ok', found, hint: '' }
}

function named(runtimes: readonly string[]): string {
  const more = runtimes.length - MAX_NAMED
  return [...runtimes.slice(0, MAX_NAMED), ...(more > 0 ? [`${more} more`] : [])].join(', ')
}

/** Measured on a temporary file in the same folder. */
async function syncP99(path: string): Promise<number> {
  // It must not be opened: to close it again would release the locks that a server in this process has on it.
  await access(path, constants.R_OK | constants.W_OK).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error
  })
  // Always the same name, which nobody else would use: a check that was interrupted leaves one file, and only until the next check.
  const file = `${path}.sallyport-check`
  await rm(file, { force: true })
  const handle = await open(file, 'wx', 0o600)
  try {
    const block = randomBytes(WRITE_BYTES)
    return await p99Of(async () => {
      await handle.write(block)
      await handle.sync()
    })
  } finally {
    await handle.close()
    await rm(file, { force: true })
  }
}

async function p99Of(write: () => Promise<void>): Promise<number> {
  const times: number[] = []
  const deadline = performance.now() + PATIENCE_MS
  while (times.length < WRITES && performance.now() < deadline) {
    const begun = performance.now()
    await write()
    times.push(performance.now() - begun)
  }
  return times.sort((a, b) => a - b)[Math.ceil(times.length * 0.99) - 1]!
}
