/**
 * K1: through the HAProxy of `deploy/haproxy`, which the server trusts, no caller can pass off its claims about itself.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { request as httpsRequest } from 'node:https'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { DeploymentFiles } from '../chaos/deployment/files.ts'
import { HEALTH_PATH, startHaproxy } from '../chaos/deployment/haproxy.ts'
import { needs } from '../support/needs.ts'
import { type Pair, startPair } from '../support/pair.ts'
import type { ProxyProgram } from '../support/proxy-program.ts'
import { DOMAIN } from '../support/secrets.ts'
import { until } from '../support/until.ts'

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
    const files = { folder, at: (name: string) => join(folder, name) } as DeploymentFiles
    const { port } = pair.server.publicAddress!
    haproxy = await startHaproxy(files, [port, port])
  })
  afterAll(async () => {
    await haproxy?.stop()
    await pair?.stop()
    await rm(folder, { recursive: true, force: true })
  })

  async function ask(localAddress = '127.0.0.1'): Promise<{ status: number; headers: Record<string, string> }> {
    return new Promise((resolve, reject) => {
      const { ca } = pair.secrets
      const headers = { host: HOST, ...FORGED }
      const request = httpsRequest({
        port: haproxy.port,
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
})
