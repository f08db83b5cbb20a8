import { once } from 'node:events'
import { request, type ServerResponse } from 'node:http'
import { connect, type Socket } from 'node:net'
import { Writable } from 'node:stream'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { listenAdmin, Traffic } from '../../admin/index.ts'
import { Feed } from '../../admin/web/feed.ts'
import { Logins } from '../../admin/web/logins.ts'
import { noLogger } from '../../protocol/base/log.ts'
import { until } from '../support/until.ts'

const reads = vi.hoisted(() => [] as string[])
vi.mock('../../protocol/base/plain-file.ts', async load => {
  const real = await load<typeof import('../../protocol/base/plain-file.ts')>()
  const readPlain = (file: string) => {
    reads.push(file)
    return real.readPlain(file)
  }
  return { ...real, readPlain }
})

const TOKEN = 'a-token-of-this-test'
type Listener = Awaited<ReturnType<typeof listenAdmin>>

let admin: Listener
let acted: number
let token: string | Promise<string>
let tokenReads: number
const sockets: Socket[] = []

const source = {
  ready: () => true,
  status: () => ({ component: 'client', recent: [], rows: Array.from({ length: 500 }, (_, i) => i) }),
  traffic: new Traffic(() => 1_000_000),
  metrics: async () => ({ contentType: 'text/plain', text: '' }),
  inspector: {
    list: () => [],
    get: (id: string) =>
      id === 'one'
        ? {
            request: { body: { text: 'a body' } },
            response: { body: { base64: Buffer.from('binary').toString('base64') } },
          }
        : undefined,
  },
  actions: { '/act': () => ({ done: ++acted }) },
}

beforeEach(async () => {
  acted = 0
  token = TOKEN
  tokenReads = 0
  const readToken = () => {
    tokenReads++
    return token
  }
  admin = await listenAdmin({ host: '127.0.0.1', port: 0, source, token: readToken, logger: noLogger })
})
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy()
  await admin.close()
})

interface Sent {
  readonly method?: string
  readonly headers?: Record<string, string>
  readonly body?: string
}

async function ask(path: string, { method = 'GET', headers = {}, body = '' }: Sent = {}) {
  const { port } = admin.address
  const sent = request({ host: '127.0.0.1', port, path, method, headers, agent: false }).end(body)
  const [response] = await once(sent, 'response')
  const text: string = String(response.headers['content-type']).startsWith('text/event-stream')
    ? String((await once(response, 'data'))[0])
    : (await response.setEncoding('utf8').toArray()).join('')
  response.destroy()
  return { status: response.statusCode as number, headers: response.headers as Record<string, string>, text }
}

async function logIn(code = admin.code(), headers: Record<string, string> = {}) {
  const { status, headers: answered } = await ask('/ui/login', { method: 'POST', body: code, headers })
  return { status, cookie: String(answered['set-cookie']).split(';')[0]!, whole: String(answered['set-cookie']) }
}

const FILES = [
  '/',
  '/ui/app.js',
  '/ui/views.js',
  '/ui/chart.js',
  '/ui/dom.js',
  '/ui/requests.js',
  '/ui/style.css',
  '/ui/icon.svg',
]

describe('A4: the files of the page', () => {
  test.each(FILES)(
    '%s is for anybody at an allowed Host, and allows only its own scripts, styles and addresses',
    async path => {
      const { status, headers, text } = await ask(path)
      expect(status).toBe(200)
      expect(text.length).toBeGreaterThan(100)
      expect(headers['content-security-policy']).toContain("default-src 'none'; script-src 'self'; style-src 'self'")
      expect(headers['content-security-policy']).toContain("require-trusted-types-for 'script'; trusted-types 'none'")
      expect(headers['x-content-type-options']).toBe('nosniff')
      expect((await ask(path, { headers: { host: 'attacker.example' } })).status).toBe(403)
    },
  )

  test('are read once, however many ask', async () => {
    const answers = await Promise.all(Array.from({ length: 20 }, () => ask('/')))
    expect(answers.every(({ status }) => status === 200)).toBe(true)
    expect(reads.filter(file => file.endsWith('index.html'))).toHaveLength(1)
  })

  test('are under 60 KiB in total, and name nothing outside', async () => {
    const texts = await Promise.all(FILES.map(async path => (await ask(path)).text))
    expect(texts.join('').length).toBeLessThan(60 * 1024)
    const outside = texts.join('').match(/https?:\/\/[^\s'"`]+/g)
    expect(new Set(outside)).toEqual(new Set(['http://www.w3.org/2000/svg', 'https://${row.host']))
  })

  test.each(['/ui/', '/ui/../package.json', '/ui/constructor', '/index.html'])('%s is not one of them', async path => {
    expect((await ask(path)).status).toBe(401)
  })
})

test('A4: what an inspector keeps is only for logins and the token', async () => {
  for (const path of ['/ui/inspect/one', '/ui/inspect/one/request', '/ui/inspect/one/response']) {
    expect([path, (await ask(path)).status]).toEqual([path, 401])
    const { cookie } = await logIn(admin.code())
    const { status, headers, text } = await ask(path, { headers: { cookie } })
    expect([path, status]).toEqual([path, 200])
    expect(headers['content-type']).toBe(path.endsWith('one') ? 'application/json' : 'application/octet-stream')
    expect(text.includes('a body')).toBe(path.endsWith('request'))
    if (path.endsWith('response')) expect(text).toBe('binary')
    expect((await ask(`${path}x`, { headers: { cookie } })).status).toBe(401)
  }
  const authorization = { authorization: `Bearer ${TOKEN}` }
  for (const path of ['two', 'one/else', '', '../status', 'one/request/']) {
    expect([path, (await ask(`/ui/inspect/${path}`, { headers: authorization })).status]).toEqual([path, 404])
  }
})

describe('A4: the login', () => {
  test('a code works once; the cookie is for this page, and for no script and no other site', async () => {
    const code = admin.code()
    const { status, whole, cookie } = await logIn(code)
    expect(status).toBe(204)
    expect(whole).toMatch(
      new RegExp(`^sallyport-${admin.address.port}=[\\w-]{22}; Path=/ui; HttpOnly; SameSite=Strict; `),
    )
    expect((await ask('/ui/events', { headers: { cookie } })).status).toBe(200)
    expect((await logIn(code)).status).toBe(401)
  })

  test('pages of two components are open at once, even if their own ports are the same and others are forwarded to them', async () => {
    const [one, two] = ['localhost:9091', 'localhost:9092'].map(host => ({ host }))
    const names = [await logIn(admin.code(), one), await logIn(admin.code(), two)].map(({ cookie }) => cookie)
    const cookie = names.join('; ')
    expect(names.map(name => name.split('=')[0])).toEqual(['sallyport-9091', 'sallyport-9092'])
    for (const headers of [one, two]) {
      expect((await ask('/ui/events', { headers: { ...headers, cookie } })).status).toBe(200)
    }
    // A browser sends both cookies to both ports.
    expect((await ask('/ui/events', { headers: { ...one, cookie: names[1]! } })).status).toBe(401)
  })

  test.each(['another-token-of-this-test', ''])('what an earlier token let in ends with it: %j follows', async next => {
    const authorization = `Bearer ${TOKEN}`
    const issue = async () => {
      const given = await ask('/ui/codes', { method: 'POST', headers: { authorization } })
      return (JSON.parse(given.text) as { code: string }).code
    }
    const { cookie } = await logIn(await issue())
    const code = await issue()
    const reads = async () => (await ask('/ui/events', { headers: { cookie } })).status
    expect(await reads()).toBe(200)
    token = next
    expect([await reads(), (await logIn(code)).status]).toEqual([401, 401])
    token = TOKEN
    expect([await reads(), (await logIn(code)).status]).toEqual([401, 401])
    expect((await logIn(await issue())).status).toBe(204)
  })

  test('a code that an earlier token created opens nothing, even if no login was tried before', async () => {
    const authorization = `Bearer ${TOKEN}`
    const { text } = await ask('/ui/codes', { method: 'POST', headers: { authorization } })
    token = 'another-token-of-this-test'
    expect((await logIn(JSON.parse(text).code)).status).toBe(401)
  })

  test.each(['', 'x'.repeat(22), 'x'.repeat(100_000)])('an invalid code: %.30s', async code => {
    expect((await logIn(code)).status).toBe(401)
  })

  test('a code needs the token, and every login from another site is refused', async () => {
    expect((await ask('/ui/codes', { method: 'POST' })).status).toBe(401)
    const { cookie } = await logIn()
    expect((await ask('/ui/codes', { method: 'POST', headers: { cookie } })).status).toBe(401)
    const given = await ask('/ui/codes', { method: 'POST', headers: { authorization: `Bearer ${TOKEN}` } })
    const { code } = JSON.parse(given.text) as { code: string }
    for (const site of ['cross-site', 'same-site']) {
      expect((await logIn(code, { 'sec-fetch-site': site, 'sec-fetch-mode': 'no-cors' })).status).toBe(403)
    }
    expect((await logIn(code, { 'sec-fetch-site': 'same-origin' })).status).toBe(204)
  })

  test('a cookie reads the events and nothing else, and changes nothing', async () => {
    const { cookie } = await logIn()
    const headers = { cookie, 'content-type': 'application/json' }
    for (const path of ['/status', '/act', '/sessions', '/inbox']) {
      expect((await ask(path, { headers })).status).toBe(401)
      expect((await ask(path, { method: 'POST', headers, body: '{}' })).status).toBe(401)
    }
    expect(acted).toBe(0)
  })

  test('a cookie is worthless at another Host (DNS rebinding), from another site, or forged', async () => {
    const { cookie } = await logIn()
    const events = async (headers: Record<string, string>) => (await ask('/ui/events', { headers })).status
    expect(await events({ cookie, host: 'attacker.example' })).toBe(403)
    expect(await events({ cookie, 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'cors' })).toBe(403)
    expect(await events({ cookie, 'sec-fetch-site': 'same-site', 'sec-fetch-mode': 'no-cors' })).toBe(403)
    expect(await events({ cookie: cookie.replace(/.$/, '.') })).toBe(401)
    expect(await events({ cookie: cookie.replace(/-\d+=/, '-1=') })).toBe(401)
    expect(await events({})).toBe(401)
    expect(await events({ authorization: `Bearer ${TOKEN}` })).toBe(200)
  })

  test('codes expire after ten minutes, logins after twelve hours, and neither fills memory', () => {
    let now = 0
    const logins = new Logins(() => now)
    const code = logins.issue()
    now = 10 * 60_000 + 1
    expect(logins.redeem(code)).toBeUndefined()
    const first = logins.redeem(logins.issue())!
    expect(logins.holds(first)).toBe(true)
    now += 12 * 3_600_000
    expect(logins.holds(first)).toBe(false)
    const codes = Array.from({ length: 9 }, () => logins.issue())
    expect(codes.map(one => logins.redeem(one) !== undefined)).toEqual([false, ...Array(8).fill(true)])
    const many = Array.from({ length: 17 }, () => logins.redeem(logins.issue())!)
    expect(many.map(one => logins.holds(one))).toEqual([false, ...Array(16).fill(true)])
  })
})

describe('the events', () => {
  const open = async (cookie: string): Promise<Socket> => {
    const { port } = admin.address
    const socket = connect(port, '127.0.0.1')
    sockets.push(socket)
    socket.write(`GET /ui/events HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nCookie: ${cookie}\r\n\r\n`)
    return socket
  }

  test('the first snapshot has all steps, and lists cut to 200 rows with the total count', async () => {
    const { cookie } = await logIn()
    const { text, headers } = await ask('/ui/events', { headers: { cookie } })
    expect(headers['cache-control']).toBe('no-store')
    const { status, history, failed } = JSON.parse(text.slice('data: '.length))
    expect([status.rows.length, status.rowsInAll, failed]).toEqual([200, { rows: 500 }, []])
    expect(history).toHaveLength(179)
  })

  test('eight may read, the ninth is told so, and a place is free again when one leaves', async () => {
    const { cookie } = await logIn()
    const readers = await Promise.all(Array.from({ length: 8 }, () => open(cookie)))
    await Promise.all(readers.map(reader => once(reader, 'data')))
    const ninth = async () => (await ask('/ui/events', { headers: { cookie } })).status
    expect(await ninth()).toBe(503)
    readers[0]!.destroy()
    await until(async () => (await ninth()) === 200)
  })

  test('a page that leaves before its first snapshot takes no place', async () => {
    const { cookie } = await logIn()
    for (let i = 0; i < 8; i++) {
      const reading = Promise.withResolvers<string>()
      const before = tokenReads
      token = reading.promise
      const page = await open(cookie)
      await until(() => tokenReads > before)
      page.resetAndDestroy()
      await once(page, 'close')
      await ask('/livez')
      reading.resolve(TOKEN)
    }
    token = TOKEN
    expect((await ask('/ui/events', { headers: { cookie } })).status).toBe(200)
  })

  test('a page that stops reading loses its place when its time is over', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] })
    try {
      const feed = new Feed(source, noLogger)
      const pages = Array.from({ length: 8 }, () => new Writable({ write() {} }))
      for (const page of pages) feed.add(page as unknown as ServerResponse)
      expect(feed.hasRoom()).toBe(false)
      const closed = Promise.all(pages.map(page => once(page, 'close')))
      vi.advanceTimersByTime(10 * 60_000 + 2000)
      await closed
      expect(feed.hasRoom()).toBe(true)
    } finally {
      vi.useRealTimers()
    }
  })

  test('HEAD takes no place', async () => {
    const { cookie } = await logIn()
    for (let i = 0; i < 20; i++) {
      const { port } = admin.address
      const sent = request({
        host: '127.0.0.1',
        port,
        path: '/ui/events',
        method: 'HEAD',
        headers: { cookie },
        agent: false,
      })
      const [response] = await once(sent.end(), 'response')
      expect(response.statusCode).toBe(200)
      response.resume()
    }
  })
})
