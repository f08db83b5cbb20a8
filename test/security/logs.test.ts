/** No stranger can write log lines as fast as it can open connections or send requests. */
import { once } from 'node:events'
import { connect } from 'node:net'
import { afterEach, describe, expect, test } from 'vitest'
import { accessLog } from '../../cli/service/access-log.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { LINES_PER_PERIOD } from '../../protocol/base/paced-logger.ts'
import { type RouteTable, serveRouter } from '../../router/index.ts'
import { peerOptions } from '../replicas/fixture.ts'
import { startServer } from '../server/fixture.ts'

const FLOOD = 3 * LINES_PER_PERIOD

/** Counts lines by their message. */
class Lines {
  readonly said = new Map<string, number>()
  readonly addresses = new Map<string, string>()
  readonly logger: Logger

  constructor() {
    const say = (fields: object, message: string) => {
      this.said.set(message, (this.said.get(message) ?? 0) + 1)
      const { name, address } = fields as { name?: string; address?: string }
      if (message === 'listening') this.addresses.set(name!, address!)
    }
    this.logger = { debug() {}, info: say, warn: say, error: say }
  }
}

/** Sends the same on many connections, in ten parallel rows, and waits until each is closed. */
async function flood(port: number, bytes: string | Buffer): Promise<void> {
  const row = async () => {
    for (let i = 0; i < FLOOD / 10; i++) {
      const socket = connect(port, '127.0.0.1', () => socket.write(bytes))
      socket.on('error', () => {}).resume()
      await once(socket, 'close')
    }
  }
  await Promise.all(Array.from({ length: 10 }, row))
}

describe('A10: a flood of', () => {
  const closes: Array<() => Promise<void>> = []
  afterEach(async () => {
    for (const close of closes.splice(0)) await close()
  })

  const floods: ReadonlyArray<readonly [what: string, line: string, start: (logger: Logger) => Promise<void>]> = [
    [
      'refused handshakes',
      'handshake refused',
      async logger => {
        const server = await startServer({ control: { port: 0, plaintext: true }, logger })
        closes.push(() => server.close({ graceMs: 0 }))
        const upgrade = ['GET / HTTP/1.1', 'host: x', 'connection: upgrade', 'upgrade: websocket', '', ''].join('\r\n')
        await flood(server.controlAddress!.port, upgrade)
        expect(server.stats().handshakesRefused).toEqual({ 'not-found': FLOOD })
      },
    ],
    [
      'bad PROXY headers',
      'a proxy sent an invalid PROXY header',
      async logger => {
        const control = { port: 0, plaintext: true, proxyProtocol: ['127.0.0.1'] }
        const server = await startServer({ control, logger })
        closes.push(() => server.close({ graceMs: 0 }))
        await flood(server.controlAddress!.port, 'GET / HTTP/1.1\r\nhost: x\r\n\r\n')
      },
    ],
    [
      'strangers at the address for replicas',
      'TLS handshake of another replica failed',
      async logger => {
        const server = await startServer({
          directory: { url: 'redis://127.0.0.1:1' },
          peer: await peerOptions(),
          logger,
        })
        closes.push(() => server.close({ graceMs: 0 }))
        const { port } = new URL(`http://${lines.addresses.get('peer')}`)
        await flood(Number(port), 'GET / HTTP/1.1\r\nhost: x\r\n\r\n')
      },
    ],
    [
      'requests that an upstream fails',
      'an upstream failed',
      async logger => {
        const routes: RouteTable = { routes: [{ name: 'down', match: { path: '/' }, target: 'http://127.0.0.1:1' }] }
        const service = await serveRouter({ port: 0, routes, logger })
        closes.push(() => service.close({ graceMs: 0 }))
        await flood(service.address.port, 'GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n')
        expect(service.stats().total).toBe(FLOOD)
      },
    ],
    [
      'failed exchanges in the access log',
      'exchange',
      async logger => {
        const log = accessLog(logger, 'errors')
        const exchange = { method: 'GET', path: '/', status: 503, cut: false, durationMs: 1 }
        for (let i = 0; i < FLOOD; i++) log(exchange as never)
      },
    ],
  ]

  let lines: Lines
  test.each(floods)('%s is logged within bounds', async (_what, line, start) => {
    lines = new Lines()
    await start(lines.logger)
    expect(lines.said.get(line)).toBeGreaterThan(0)
    expect(lines.said.get(line)).toBeLessThan(FLOOD)
  })
})

test('an access log of all exchanges has them all', () => {
  const lines = new Lines()
  const log = accessLog(lines.logger, 'all')
  for (let i = 0; i < FLOOD; i++) log({ status: 503, cut: false, durationMs: 1 } as never)
  expect(lines.said.get('exchange')).toBe(FLOOD)
})
