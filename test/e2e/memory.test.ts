/** Large bodies and stopped readers, with each part in its own process: what a process holds is bounded. */
import { createHash } from 'node:crypto'
import { setTimeout } from 'node:timers/promises'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { Part } from '../../cli/demo/parts.ts'
import { patternChunks, patternDigest } from '../../cli/demo/pattern.ts'
import { Http1Caller } from '../support/caller-http1.ts'
import { long } from '../support/needs.ts'
import { type Processes, resetPeak, residentBytes, startProcesses } from '../support/processes.ts'
import { Upstream } from '../support/upstream.ts'

const MIB = 1024 * 1024
const BODY_BYTES = long ? 1024 * MIB : 200 * MIB
const GROWTH_BYTES = 64 * MIB
const STOPPED_GROWTH_BYTES = 16 * MIB
/** How long the reader stops. */
const STOPPED_MS = long ? 30_000 : 3_000
/** The pace of the other callers meanwhile. */
const PACE_MS = 20

let upstream: Upstream
let processes: Processes

beforeEach(async () => {
  upstream = await Upstream.start()
  processes = await startProcesses(`routes:
  - name: app-proxy
    match: { path: /app-proxy }
    target: http://127.0.0.1:${upstream.port}
`)
})
afterEach(async () => {
  await processes?.stop()
  await upstream?.stop()
})

/** Resident bytes of each of our processes after a few requests; peaks count from here. */
async function idle(): Promise<Map<Part, number>> {
  const path = upstream.on('first', request => request.answer(200, 'first'))
  const caller = await Http1Caller.connect(processes.place)
  for (let i = 0; i < 10; i++) await caller.ask({ path })
  caller.close()
  return sizes()
}

/** Resident bytes of each process now; its peak starts again from here. */
function sizes(): Map<Part, number> {
  return new Map(
    [processes.server, processes.client, processes.router].map(part => {
      resetPeak(part.pid ?? 0)
      return [part, residentBytes(part.pid ?? 0).now]
    }),
  )
}

/** By how many MiB any process has grown at most. */
function growth(before: Map<Part, number>): Record<string, number> {
  return Object.fromEntries(
    [...before].map(([part, bytes]) => [part.name, (residentBytes(part.pid ?? 0).peak - bytes) / MIB]),
  )
}

function expectBelow(grown: Record<string, number>, bytes: number): void {
  console.log(
    `grown by MiB: ${JSON.stringify(grown, (_, value) => (typeof value === 'number' ? Math.round(value) : value))}`,
  )
  for (const [name, mib] of Object.entries(grown)) expect(mib, `growth of the ${name} in MiB`).toBeLessThan(bytes / MIB)
}

describe.runIf(process.platform === 'linux')('resident memory', () => {
  it(`${BODY_BYTES / MIB} MiB down: every process grows by less than 64 MiB`, { tags: ['slow'] }, async () => {
    const before = await idle()
    const path = upstream.on('down', async request => {
      await request.write(`HTTP/1.1 200 OK\r\ncontent-length: ${BODY_BYTES}\r\n\r\n`)
      for (const part of patternChunks(BODY_BYTES)) await request.write(part)
    })
    const caller = await Http1Caller.connect(processes.place)
    const reply = await caller.begin({ path }).reply
    const hash = createHash('sha256')
    for await (const part of reply.body) hash.update(part)
    caller.close()
    expect(hash.digest('hex')).toBe(patternDigest(BODY_BYTES))
    expectBelow(growth(before), GROWTH_BYTES)
  })

  it(`${BODY_BYTES / MIB} MiB up: every process grows by less than 64 MiB`, { tags: ['slow'] }, async () => {
    const before = await idle()
    const path = upstream.on('up', async request => {
      const hash = createHash('sha256')
      for await (const part of request.body) hash.update(part)
      await request.answer(200, hash.digest('hex'))
    })
    const caller = await Http1Caller.connect(processes.place)
    const fields = ['content-length', String(BODY_BYTES)]
    const exchange = caller.begin({ method: 'POST', path, stream: true, fields })
    for (const part of patternChunks(BODY_BYTES)) await exchange.write(part)
    const seen = (await (await exchange.reply).readAll()).toString()
    caller.close()
    expect(seen).toBe(patternDigest(BODY_BYTES))
    expectBelow(growth(before), GROWTH_BYTES)
  })

  it(`a reader that stops for ${STOPPED_MS / 1000} s: growth stays under 16 MiB, others go on, and it finishes`, {
    tags: ['slow'],
  }, async () => {
    const quick = upstream.on('quick', request => request.answer(200, 'quick'))
    const path = upstream.on('stopped', async request => {
      await request.write(`HTTP/1.1 200 OK\r\ncontent-length: ${BODY_BYTES}\r\n\r\n`)
      for (const part of patternChunks(BODY_BYTES)) await request.write(part)
    })
    await idle()
    const stopped = await Http1Caller.connect(processes.place)
    const other = await Http1Caller.connect(processes.place)
    const reply = await stopped.begin({ path }).reply
    const hash = createHash('sha256')
    const body = reply.body[Symbol.asyncIterator]()
    // Part of the body has been read; from here on the windows are as wide as they get.
    for (let bytes = 0; bytes < BODY_BYTES / 8; ) {
      const { value } = (await body.next()) as { value: Buffer }
      hash.update(value)
      bytes += value.length
    }
    const before = sizes()
    const until = performance.now() + STOPPED_MS
    while (performance.now() < until) {
      expect((await other.ask({ path: quick })).content.toString()).toBe('quick')
      await setTimeout(PACE_MS)
    }
    const grown = growth(before)
    for (let next = await body.next(); !next.done; next = await body.next()) hash.update(next.value as Buffer)
    stopped.close()
    other.close()
    expect(hash.digest('hex')).toBe(patternDigest(BODY_BYTES))
    expectBelow(grown, STOPPED_GROWTH_BYTES)
  })
})
