/**
 * K1: through the HAProxy of `deploy/haproxy`, which the server trusts, no caller can pass off its claims about itself.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { request as httpsRequest } from 'node:https'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect as connectTls } from 'node:tls'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { DeploymentFiles } from '../chaos/deployment/files.ts'
import { HEALTH_PATH, startHaproxy } from '../chaos/deployment/haproxy.ts'
import { END_HEADERS, END_STREAM, frame, framesOf, head, PREFACE, TYPE } from '../support/http2-frames.ts'
import { needs } from '../support/needs.ts'
import { type Pair, startPair } from '../support/pair.ts'
import { freePort, type ProxyProgram } from '../support/proxy-program.ts'
import { DOMAIN } from '../support/secrets.ts'
import { eventually, until } from '../support/until.ts'

const HOST = `demo.${DOMAIN}`
const FORGED = {
  'x-forwarded-for': '6.6.6.6',
  'x-forwarded-proto': 'http',
  'x-forwarded-host': 'evil.example',
  'x-forwarded-port': '666',
  'x-forwarded-prefix': '/evil',
  'x-real-ip': '6.6.6.6',
  'x-request-id': 'evil',
  forwarded: 'for=6.6.6.6;host=evil.example',
  x_forwarded_host: 'evil.example',
  x_request_id: 'evil',
  traceparent: '00-66666666666666666666666666666666-6666666666666666-01',
  tracestate: 'evil=1',
}

describe.runIf(needs('haproxy'))('K1 the HAProxy of deploy/haproxy', () => {
  let folder: string
  let pair: Pair
  let haproxy: ProxyProgram
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'sallyport-haproxy-'))
    pair = await startPair({
      target: request => Response.json(Object.fromEntries(request.headers)),
      server: { trustedProxies: ['127.0.0.1'], healthPath: HEALTH_PATH },
    })
    const { cert, key } = pair.secrets.server
    for (const [name, text] of [
      ['server.pem', cert],
      ['server-key.pem', key],
      ['ca.pem', pair.secrets.ca],
    ] as const) {
      await writeFile(join(folder, name), text)
    }
    const { port } = pair.server.publicAddress!
    haproxy = await start(folder, port)
  })
  afterAll(async () => {
    await haproxy?.stop()
    await pair?.stop()
    await rm(folder, { recursive: true, force: true })
  })

  /** Both of its servers are at this port. */
  function start(to: string, port: number): Promise<ProxyProgram> {
    const files = { folder: to, at: (name: string) => join(folder, name) } as DeploymentFiles
    return startHaproxy(files, [port, port])
  }

  async function ask(
    localAddress = '127.0.0.1',
    port = haproxy.port,
  ): Promise<{ status: number; headers: Record<string, string> }> {
    return new Promise((resolve, reject) => {
      const { ca } = pair.secrets
      const headers = { host: HOST, ...FORGED }
      const request = httpsRequest({
        port,
        host: '127.0.0.1',
        localAddress,
        ca,
        servername: HOST,
        headers,
        agent: false,
      })
      request.once('error', reject).once('response', async response => {
        let text = ''
        for await (const chunk of response) text += chunk
        const status = response.statusCode!
        resolve({ status, headers: status === 200 ? JSON.parse(text) : {} })
      })
      request.end()
    })
  }

  test('K1 the upstream sees the caller as HAProxy does, and nothing that the caller made up', async () => {
    const { status, headers } = await ask()
    expect(status).toBe(200)
    expect(headers).toMatchObject({
      'x-forwarded-for': '127.0.0.1',
      'x-forwarded-proto': 'https',
      'x-forwarded-host': HOST,
      forwarded: `for=127.0.0.1;host=${HOST};proto=https`,
      'x-request-id': expect.stringMatching(/^[0-9a-f-]{32,36}$/),
    })
    expect(JSON.stringify(headers)).not.toMatch(/evil|6\.6\.6\.6|666/)
  })

  test('W10 silent connections from one network are refused long before they shut others out', async () => {
    const sockets = Array.from({ length: 600 }, () =>
      connect(haproxy.port, '127.0.0.1')
        .on('error', () => {})
        .resume(),
    )
    try {
      await until(() => sockets.some(({ destroyed }) => destroyed), 'some are refused')
      expect((await ask('127.0.0.2')).status).toBe(200)
    } finally {
      for (const socket of sockets) socket.destroy()
    }
  })

  test('an upload that is refused while no server is up leaves its connection over HTTP/2 a window', async () => {
    const alone = await start(await mkdtemp(join(folder, 'alone-')), await freePort())
    const { ca } = pair.secrets
    const socket = connectTls({ port: alone.port, host: '127.0.0.1', servername: HOST, ca, ALPNProtocols: ['h2'] })
    let read: Buffer = Buffer.alloc(0)
    socket.on('error', () => {}).on('data', (bytes: Buffer) => (read = Buffer.concat([read, bytes])))
    try {
      await eventually(async () => expect((await ask('127.0.0.1', alone.port)).status).toBe(503))
      const heard = (type: number) => framesOf(read).filter(one => one.type === type && one.stream === 0).length
      const ping = frame(TYPE.ping, 0, 0, Buffer.alloc(8))
      socket.write(
        Buffer.concat([PREFACE, frame(TYPE.settings, 0, 0), frame(TYPE.headers, END_HEADERS, 1, head('POST'))]),
      )
      // The body comes a few round trips later, so that an answer that does not wait for it is there before.
      for (let pongs = 0; pongs < 5; pongs++) {
        socket.write(ping)
        await until(() => heard(TYPE.ping) > pongs, 'a round trip')
      }
      const bytes = Buffer.alloc(16_383)
      for (const flags of [0, 0, 0, END_STREAM]) socket.write(frame(TYPE.data, flags, 1, bytes))
      await until(() => heard(TYPE.window) > 0, 'a window for the connection')
    } finally {
      socket.destroy()
      await alone.stop()
    }
  })
})
