// @module-tag slow
/** slowhttptest against the edge: slow heads, slow bodies, slow readers. A good caller is served all the while. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import type { Socket } from 'node:net'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { DEFAULT_HTTP_LIMITS } from '../../protocol/http/limits.ts'
import { unhurried } from '../support/busy.ts'
import { Http1Caller } from '../support/caller-http1.ts'
import { long, needs, program } from '../support/needs.ts'
import { runProgram, score } from './program.ts'
import { type SuiteTarget, startTarget } from './target.ts'

const CONNECTIONS = long ? 1000 : 40
/** The long run has the real limits. */
const SHORT_MS = 2000
const limits = long ? DEFAULT_HTTP_LIMITS : { headMs: SHORT_MS, bodyIdleMs: SHORT_MS, stalledMs: SHORT_MS }
const GRACE_MS = unhurried(5000)
/** More than a handshake: what is written of a body counts, not what comes before. */
const BODY_BYTES = 16 * 1024
const SECONDS = long ? 150 : 10

describe.runIf(needs('slowhttptest'))('slowhttptest', () => {
  let target: SuiteTarget
  /**
   * By connection: when it last accepted something from us, or began; how long it lived on from there, NaN while it
   * lives.
   */
  let lives: Map<Socket, { movedAt: number; written: number; ms: number }>
  let sampling: NodeJS.Timeout

  const onSocket = (message: unknown) => {
    const { socket } = message as { socket: Socket }
    if (socket.localPort !== target.edgePort) return
    const life = { movedAt: performance.now(), written: 0, ms: Number.NaN }
    lives.set(socket, life)
    socket.once('close', () => {
      life.ms = performance.now() - life.movedAt
    })
  }

  /** A reader receives megabytes before it stops: the kernels hold them. */
  const sample = () => {
    for (const [socket, life] of lives) {
      const { bytesWritten = 0 } = (socket as unknown as { _handle?: { bytesWritten: number } | null })._handle ?? {}
      if (bytesWritten <= life.written + BODY_BYTES) continue
      life.written = bytesWritten
      life.movedAt = performance.now()
    }
  }

  beforeEach(async () => {
    lives = new Map()
    // A thousand stopped readers hold more than a runtime's share of the buffers: then some have nothing to be stopped
    // at.
    target = await startTarget(tls => ({ public: { port: 0, tls, limits }, limits: { bufferBytesPerRuntime: 0 } }))
    subscribe('net.server.socket', onSocket)
    sampling = setInterval(sample, 250)
  })
  afterEach(async () => {
    unsubscribe('net.server.socket', onSocket)
    clearInterval(sampling)
    await target.stop()
  })

  /** Sends one request after the other until told to stop; each must be answered. */
  async function goodCaller(stop: AbortSignal): Promise<{ answered: number; slowestMs: number }> {
    const caller = await Http1Caller.connect(target.place)
    let answered = 0
    let slowestMs = 0
    while (!stop.aborted) {
      const since = performance.now()
      const reply = await caller.ask({ path: '/1000' })
      expect([reply.status, reply.content.length]).toEqual([200, 1000])
      slowestMs = Math.max(slowestMs, performance.now() - since)
      answered++
      await new Promise(resolve => setTimeout(resolve, 20))
    }
    caller.close()
    return { answered, slowestMs: Math.round(slowestMs) }
  }

  test.each([
    ['slow heads', ['-H', '-i', '2'], '/1000', limits.headMs],
    ['slow bodies', ['-B', '-i', '120', '-s', '100000'], '/1000', limits.bodyIdleMs],
    // The answer is larger than what kernels hold of it.
    ['slow readers', ['-X', '-n', '300', '-w', '1', '-y', '2', '-z', '1'], '/20000000', limits.stalledMs],
  ])('%s', { timeout: (SECONDS + 300) * 1000 }, async (name, mode, path, limitMs) => {
    const over = new AbortController()
    const caller = goodCaller(over.signal)
    const url = `https://127.0.0.1:${target.edgePort}${path}`
    const amount = ['-c', String(CONNECTIONS), '-r', String(CONNECTIONS / 2), '-l', String(SECONDS), '-p', '5']
    await runProgram(program('slowhttptest'), [...mode, ...amount, '-u', url], (SECONDS + 200) * 1000)
    // The good caller's connection is still open, so it is none of these.
    const ended = [...lives.values()].filter(({ ms }) => !Number.isNaN(ms))
    const longest = Math.max(...ended.map(({ ms }) => ms))
    over.abort()
    const { answered, slowestMs } = await caller
    score(
      'slowhttptest',
      `${name}: ${lives.size} connections, the longest stood still for ${Math.round(longest)} ms (limit ${limitMs} ms); ` +
        `good caller: ${answered} answered, the slowest in ${slowestMs} ms`,
    )
    expect(lives.size).toBeGreaterThanOrEqual(CONNECTIONS)
    expect(answered).toBeGreaterThan(5)
    expect(longest).toBeLessThan(limitMs + GRACE_MS)
    expect(longest).toBeGreaterThan(limitMs / 2)
  })
})
