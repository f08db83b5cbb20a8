import { once } from 'node:events'
import { chownSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, request, type Server } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type AdminListener, createMetrics, listenAdmin, listenHealth } from '../../admin/index.ts'
import { noLogger } from '../../protocol/base/log.ts'
import { sallyport } from '../cli/run.ts'
import { needs } from '../support/needs.ts'
import { eventually } from '../support/until.ts'

const TOKEN = 'a-token-of-this-test'

let isReady: boolean
let token: () => string | Promise<string>
let admin: AdminListener
let health: AdminListener

const source = {
  ready: () => isReady,
  status: () => ({ runtime: 'demo', note: '<script>alert(1)</script>' }),
  metrics: async () => ({ contentType: 'text/plain; version=0.0.4', text: 'sallyport_sessions 1\n' }),
}

beforeEach(async () => {
  isReady = true
  token = () => TOKEN
  const at = { host: '127.0.0.1', port: 0, source }
  admin = await listenAdmin({ ...at, token: () => token(), logger: noLogger })
  health = await listenHealth(at)
})
afterEach(() => Promise.all([admin.close(), health.close()]))

interface Answer {
  readonly status: number
  readonly headers: Record<string, string | string[] | undefined>
  readonly body: string
}

async function ask(
  listener: AdminListener,
  path: string,
  { method = 'GET', headers = {} }: { method?: string; headers?: Record<string, string> } = {},
): Promise<Answer> {
  const { port } = listener.address
  const sent = request({ host: '127.0.0.1', port, path, method, headers, agent: false }).end()
  const [response] = await once(sent, 'response')
  let body = ''
  for await (const chunk of response.setEncoding('utf8')) body += chunk
  return { status: response.statusCode, headers: response.headers, body }
}

const bearer = { authorization: `Bearer ${TOKEN}` }

describe('admin listener', () => {
  test.each(['/livez', '/readyz', '/metrics'])('A1: %s needs no token', async path => {
    expect((await ask(admin, path)).status).toBe(200)
    expect(await ask(admin, path, { method: 'HEAD' })).toMatchObject({ status: 200, body: '' })
  })

  test.each(['/livez', '/readyz', '/metrics', '/status', '/x'])(
    'A2: %s is refused if its Host is a name',
    async path => {
      expect((await ask(admin, path, { headers: { host: 'rebound.example' } })).status).toBe(403)
    },
  )

  test('A1: a request that needs no token does not wait for it, and a token that cannot be read opens nothing', async () => {
    const { promise, reject } = Promise.withResolvers<string>()
    token = () => promise
    const held = ask(admin, '/status', { headers: bearer })
    expect((await ask(admin, '/livez', { headers: bearer })).status).toBe(200)
    expect((await ask(admin, '/status')).status).toBe(401)
    reject(new Error('gone'))
    expect((await held).status).toBe(401)
  })

  test('A1: strangers with wrong tokens cause one read at a time, and the right token waits for at most two', async () => {
    let reads = 0
    let readEnds = Promise.withResolvers<string>()
    token = () => {
      reads++
      return readEnds.promise
    }
    const wrong = { authorization: 'Bearer wrong' }
    const first = ask(admin, '/status', { headers: wrong })
    await eventually(() => expect(reads).toBe(1))
    const { port } = admin.address
    for (let n = 0; n < 200; n++) {
      const stranger = connect(port, '127.0.0.1')
      stranger.end('GET /status HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer wrong\r\n\r\n')
      await once(stranger.resume(), 'ready')
      stranger.destroy()
    }
    const rightful = ask(admin, '/status', { headers: bearer })
    expect((await ask(admin, '/livez')).status).toBe(200)
    expect(reads).toBe(1)
    // The token has changed since the first read began.
    const { resolve } = readEnds
    readEnds = Promise.withResolvers()
    readEnds.resolve(TOKEN)
    resolve('wrong')
    expect((await first).status).toBe(200)
    expect((await rightful).status).toBe(200)
    expect(reads).toBe(2)
  })

  test('A2: a request with the token may use any host name', async () => {
    const headers = { host: 'admin.example', ...bearer }
    expect((await ask(admin, '/status', { headers })).status).toBe(200)
    expect((await ask(admin, '/metrics', { headers })).status).toBe(200)
  })

  test('A3: /status needs the token, and so does every unknown path', async () => {
    for (const path of ['/status', '/nothing']) {
      const answer = await ask(admin, path)
      expect(answer.status).toBe(401)
      expect(answer.headers['www-authenticate']).toBe('Bearer')
      expect((await ask(admin, path, { headers: { authorization: 'Bearer wrong' } })).status).toBe(401)
    }
    expect(JSON.parse((await ask(admin, '/status', { headers: bearer })).body)).toEqual(source.status())
    expect((await ask(admin, '/nothing', { headers: bearer })).status).toBe(404)
  })

  test.each(['POST', 'PUT', 'DELETE', 'OPTIONS'])('A3: %s changes nothing and needs the token', async method => {
    expect((await ask(admin, '/livez', { method })).status).toBe(401)
    expect((await ask(admin, '/livez', { method, headers: bearer })).status).toBe(404)
    expect((await ask(admin, '/status', { method, headers: bearer })).status).toBe(404)
  })

  test('A3: answers allow no other origin', async () => {
    const headers = { ...bearer, origin: 'https://evil.example' }
    const answer = await ask(admin, '/status', { headers })
    expect(Object.keys(answer.headers).filter(name => name.startsWith('access-control'))).toEqual([])
  })

  test('A4: no answer is HTML, and none may load anything', async () => {
    for (const path of ['/status', '/livez', '/<script>']) {
      const { headers } = await ask(admin, path, { headers: bearer })
      expect(headers['content-type']).not.toContain('html')
      expect(headers['content-security-policy']).toContain("default-src 'none'")
      expect(headers['x-content-type-options']).toBe('nosniff')
      expect(headers['cache-control']).toBe('no-store')
    }
  })

  test('a token that is empty or cannot be read opens nothing', async () => {
    token = () => {
      throw new Error('gone')
    }
    expect((await ask(admin, '/status', { headers: bearer })).status).toBe(401)
    token = () => ''
    expect((await ask(admin, '/status', { headers: { authorization: 'Bearer ' } })).status).toBe(401)
  })

  test('a changed token takes effect at once', async () => {
    token = () => 'another-token-of-this-test'
    expect((await ask(admin, '/status', { headers: bearer })).status).toBe(401)
    const headers = { authorization: 'Bearer another-token-of-this-test' }
    expect((await ask(admin, '/status', { headers })).status).toBe(200)
  })

  test('/readyz follows the component, /livez does not', async () => {
    isReady = false
    expect(await ask(admin, '/readyz')).toMatchObject({ status: 503, body: 'not ready\n' })
    expect((await ask(admin, '/livez')).status).toBe(200)
  })
})

describe('health listener', () => {
  test.each(['/livez', '/readyz', '/metrics'])("A1: %s answers at a pod's address with any Host", async path => {
    for (const host of ['10.42.0.17:8086', 'sallyport-server.sallyport.svc:8086', 'anything']) {
      expect((await ask(health, path, { headers: { host } })).status).toBe(200)
      expect((await ask(health, path, { method: 'HEAD', headers: { host } })).status).toBe(200)
    }
  })

  test('A1: it serves nothing else, even with the token', async () => {
    expect((await ask(health, '/status', { headers: bearer })).status).toBe(404)
    expect((await ask(health, '/', {})).status).toBe(404)
    for (const method of ['POST', 'DELETE', 'OPTIONS']) {
      expect(await ask(health, '/livez', { method })).toMatchObject({ status: 405, headers: { allow: 'GET, HEAD' } })
    }
  })
})

describe.each(['admin', 'health'] as const)('W10: a connection to the %s listener', name => {
  const dial = () => {
    const socket = connect((name === 'admin' ? admin : health).address.port, '127.0.0.1')
    socket.on('error', () => {})
    return socket.setEncoding('utf8')
  }
  const question = 'GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n'

  test('asks one thing at a time: asking for more closes it, and no second answer begins', async () => {
    let begun = 0
    const { metrics } = source
    source.metrics = () => {
      begun++
      return metrics()
    }
    try {
      const socket = dial()
      socket.resume().write(question.repeat(1000))
      await once(socket, 'close')
      expect(begun).toBe(1)
    } finally {
      source.metrics = metrics
    }
  })

  test('may ask again as soon as it has its answer', async () => {
    const socket = dial()
    let answers = 0
    let seen = ''
    const all = Promise.withResolvers<void>()
    socket.on('close', () => all.resolve())
    socket.on('data', data => {
      seen += data
      if (!seen.endsWith('sallyport_sessions 1\n')) return
      seen = ''
      answers++
      if (answers === 500) all.resolve()
      else socket.write(question)
    })
    socket.write(question)
    await all.promise
    socket.destroy()
    expect(answers).toBe(500)
  })
})

test('a port in use is an error with its code', async () => {
  const { port } = admin.address
  await expect(listenHealth({ host: '127.0.0.1', port, source })).rejects.toMatchObject({ code: 'EADDRINUSE' })
})

test('close ends idle connections too', async () => {
  const socket = connect(admin.address.port, '127.0.0.1')
  await once(socket, 'connect')
  await admin.close()
  await once(socket.resume(), 'close')
})

test('A5: a printed configuration shows no password', async () => {
  const environment = { SALLYPORT_PROXY: 'http://user:hidden-password@proxy.example:3128' }
  const { out, code } = await sallyport(['config', 'print', 'client'], { environment })
  expect(code).toBe(0)
  expect(out).toContain('proxy.example:3128')
  expect(out).not.toContain('hidden-password')
})

test('A7: metrics name no runtime, host, path or address', async () => {
  const metrics = createMetrics({ component: 'server', version: '0', snapshot: () => ({ sessions: 1 }) })
  const names = {
    runtime: 'tenant-a',
    host: 'tenant-b.example',
    path: '/tenant-c',
    caller: '192.0.2.77',
    method: 'TENANT',
  }
  const rest = { requestId: 'tenant-d', route: 'tenant-e', session: 'tenant-f', code: 'tenant-g' }
  const numbers = { status: 200, durationMs: 1, bytesIn: 0, bytesOut: 0, cut: false, upgrade: false }
  metrics.record({ ...names, ...rest, ...numbers })
  const { text } = await metrics.expose()
  expect(text).toContain('sallyport_exchanges_total{http_response_status_code="200",error_type="other"} 1')
  expect(text).not.toMatch(/tenant|192\.0\.2/i)
  metrics.close()
})

describe.runIf(needs('root'))("A8: root's command line and other users' files", () => {
  const SOMEBODY = 65_534
  let folder: string
  let trap: Server
  let heard: string[]
  const before = process.env.TMPDIR

  beforeEach(async () => {
    folder = mkdtempSync(join(tmpdir(), 'sallyport-planted-'))
    process.env.TMPDIR = folder
    writeFileSync(join(folder, 'private.key'), 'the-private-key-of-root', { mode: 0o600 })
    heard = []
    trap = createServer((asked, answer) => {
      heard.push(asked.headers.authorization ?? 'nothing')
      answer.end('{}')
    }).listen(0, '127.0.0.1')
    await once(trap, 'listening')
  })
  afterEach(() => {
    if (before === undefined) delete process.env.TMPDIR
    else process.env.TMPDIR = before
    trap.close()
    rmSync(folder, { recursive: true })
  })

  function plant(directory: string): Record<string, string> {
    const url = `http://127.0.0.1:${(trap.address() as AddressInfo).port}`
    const tokenFile = join(folder, 'private.key')
    mkdirSync(directory, { recursive: true, mode: 0o700 })
    const path = join(directory, `server-${process.pid}.json`)
    writeFileSync(path, JSON.stringify({ component: 'server', pid: process.pid, url, tokenFile }))
    for (const planted of [path, directory]) chownSync(planted, SOMEBODY, SOMEBODY)
    return { url }
  }

  test.each<[string, string, Record<string, string>]>([
    ['in the temporary folder', 'sallyport-0', {}],
    ['where RUNTIME_DIRECTORY leads', 'unit', { RUNTIME_DIRECTORY: 'unit' }],
    ['where XDG_RUNTIME_DIR leads', 'session/sallyport', { XDG_RUNTIME_DIR: 'session' }],
  ])('A8: a planted file %s receives no secret', async (_name, directory, variables) => {
    const { url } = plant(join(folder, directory))
    const environment = Object.fromEntries(Object.entries(variables).map(([name, path]) => [name, join(folder, path)]))
    await sallyport(['status'], { environment })
    await sallyport(['status', '--admin.token.file', join(folder, 'private.key')], { environment })
    await sallyport(['drain'], { environment })
    expect(heard).toEqual([])
    // Somebody who names the address sends only what they name along with it, or nothing.
    await sallyport(['status', '--admin', url!], { environment })
    expect(heard).toEqual(['nothing'])
  })

  test('A8: a file that holds no token is neither sent nor shown', async () => {
    const key = join(folder, 'key.pem')
    writeFileSync(key, '-----BEGIN PRIVATE KEY-----\nMC4CAQAw\n-----END PRIVATE KEY-----\n')
    const url = `http://127.0.0.1:${(trap.address() as AddressInfo).port}`
    const { code, notes } = await sallyport(['status', '--admin', url, '--admin.token.file', key])
    expect([code, notes.includes('MC4CAQAw'), heard]).toEqual([3, false, []])
    expect(notes).toContain('has something else in it')
  })
})
