/** A pool without connections is forgotten; an exchange that pauses meanwhile must not open its next one there. */
import { createServer as createHttp1 } from 'node:http'
import { createServer as createHttp2 } from 'node:http2'
import type { Server } from 'node:net'
import { afterEach, expect, it } from 'vitest'
import type { ResponseSink } from '../../../protocol/exchange.ts'
import { fillTarget, parseTarget } from '../../../router/target.ts'
import { Upstreams } from '../../../router/upstream/upstreams.ts'
import { unhurried } from '../../support/busy.ts'
import { DEAF, UPSTREAM_REQUEST } from '../../support/ends.ts'
import { lastingPort } from '../../support/ports.ts'
import { eventually } from '../../support/until.ts'

let upstreams: Upstreams | undefined
afterEach(() => upstreams?.close())

it.each([
  ['http', () => createHttp1((_, answer) => answer.end())],
  ['h2c', () => createHttp2((_, answer) => answer.end())],
] as [string, () => Server][])(
  '%s: the connection is in the known pool, and goes once it has been idle',
  async (protocol, create) => {
    const port = await lastingPort()
    const target = fillTarget(parseTarget(`${protocol}://127.0.0.1:${port}`), {}, new Map(), undefined)!
    upstreams = new Upstreams({ idleMs: unhurried(1000) })
    const ended = Promise.withResolvers<void>()
    const response: ResponseSink = {
      ...DEAF,
      responseEnd: () => ended.resolve(),
      responseAbort: error => ended.reject(error),
    }
    upstreams.forward(target, UPSTREAM_REQUEST, { connectMs: 10_000, headMs: 10_000, attempts: 8 }, response)
    await eventually(() => expect(upstreams!.stats().targets).toBe(0))
    const server = create()
    let open = 0
    server.on('connection', socket => {
      open++
      socket.once('close', () => open--)
    })
    server.listen(port, '127.0.0.1')
    await ended.promise
    expect(upstreams.stats()).toMatchObject({ targets: 1, connections: 1 })
    await eventually(() => expect(open).toBe(0))
    server.close()
  },
)
