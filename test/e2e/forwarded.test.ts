import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { connect } from '../../client/index.ts'
import { createRouter, type RouterService, serveRouter } from '../../router/index.ts'
import type { Caller } from '../support/caller.ts'
import { Http1Caller } from '../support/caller-http1.ts'
import { value, values } from '../support/http1-wire.ts'
import { needs } from '../support/needs.ts'
import { startNginx } from '../support/nginx.ts'
import { type Pair, startPair } from '../support/pair.ts'
import type { ProxyProgram } from '../support/proxy-program.ts'
import { DOMAIN } from '../support/secrets.ts'
import { Upstream } from '../support/upstream.ts'

/** What an attacker sends; none of it may reach the upstream. */
const FORGED = [
  ...['x-forwarded-for', '203.0.113.66', 'x-forwarded-proto', 'gopher', 'x-forwarded-host', 'forged.example'],
  ...['forwarded', 'for=203.0.113.66;host=forged.example', 'x-real-ip', '203.0.113.66'],
  ...['x_forwarded_for', '203.0.113.66', 'x-forwarded-port', '666', 'x-forwarded-server', 'forged'],
]

let upstream: Upstream
let service: RouterService
let pair: Pair
let nginx: ProxyProgram | undefined
let seen: string[]

const table = () => ({
  routes: [
    { name: 'kept', match: { path: '/' }, target: `http://127.0.0.1:${upstream.port}` },
    { name: 'own', match: { path: '/own-host' }, target: `http://127.0.0.1:${upstream.port}`, host: 'target' as const },
  ],
})

beforeAll(async () => {
  upstream = await Upstream.start()
  for (const path of ['/', '/own-host']) {
    upstream.answers.set(path, request => {
      seen = request.fields
      return request.answer(200)
    })
  }
  service = await serveRouter({ port: 0, routes: table(), trustedProxies: ['127.0.0.1/32'] })
  pair = await startPair({ target: createRouter({ routes: table() }), runtime: 'embedded' })
  await pair.connect('service', `http://127.0.0.1:${service.address.port}`)
  if (needs('nginx')) nginx = await startNginx(`http://127.0.0.1:${service.address.port}`, pair.secrets)
})
afterAll(async () => {
  await pair?.stop()
  await nginx?.stop()
  await service?.close({ graceMs: 0 })
  await upstream?.stop()
})

const ENTRIES = {
  'embedded router': () => pair.placeOf('embedded'),
  'client to router service': () => pair.placeOf('service'),
  'nginx to router service': () => ({
    port: nginx?.port ?? 0,
    authority: `ingress.${DOMAIN}:${nginx?.port}`,
    ca: pair.secrets.ca,
  }),
}

for (const [name, place] of Object.entries(ENTRIES)) {
  describe.runIf(!name.startsWith('nginx') || needs('nginx'))(name, () => {
    let caller: Caller
    beforeAll(async () => {
      caller = await Http1Caller.connect(place())
    })
    afterAll(() => caller?.close())

    it("App-Proxy sees the real address, https and the outer host; the caller's forgeries are gone", async () => {
      const reply = await caller.ask({ path: '/', fields: FORGED })
      expect(reply.status).toBe(200)
      const { authority } = place()
      expect(values(seen, 'x-forwarded-for')).toEqual(['127.0.0.1'])
      expect(values(seen, 'x-forwarded-proto')).toEqual(['https'])
      expect(values(seen, 'x-forwarded-host')).toEqual([authority])
      expect(values(seen, 'forwarded')).toHaveLength(1)
      expect(value(seen, 'forwarded')).toMatch(/^for="?127\.0\.0\.1"?;/)
      expect(value(seen, 'forwarded')).toContain('proto=https')
      expect(seen.join('\n')).not.toMatch(/203\.0\.113\.66|forged|gopher|\b666\b/)
      expect(values(seen, 'host')).toEqual([authority])
    })

    it("Host is the target's if the route says so", async () => {
      await caller.ask({ path: '/own-host' })
      expect(values(seen, 'host')).toEqual([`127.0.0.1:${upstream.port}`])
      expect(values(seen, 'x-forwarded-host')).toEqual([place().authority])
    })

    it('an X-Request-Id of an untrusted caller is replaced', async () => {
      await caller.ask({ path: '/', fields: ['x-request-id', 'chosen-by-the-caller'] })
      expect(values(seen, 'x-request-id')).toHaveLength(1)
      expect(value(seen, 'x-request-id')).not.toBe('chosen-by-the-caller')
    })
  })
}

describe('proxies in front of the public edge', () => {
  it('a trusted proxy is believed, counted from the right', async () => {
    const behind = await startPair({
      target: createRouter({ routes: table() }),
      secrets: pair.secrets,
      server: { trustedProxies: ['127.0.0.0/8', '10.0.0.0/8'] },
    })
    const caller = await Http1Caller.connect(behind.place)
    const fields = [
      ...['x-forwarded-for', '203.0.113.66, 198.51.100.7', 'x-forwarded-for', '10.1.2.3'],
      ...['x-forwarded-proto', 'https', 'x-forwarded-host', 'outer.example', 'x-request-id', 'kept-1'],
    ]
    await caller.ask({ path: '/', fields })
    expect(values(seen, 'x-forwarded-for')).toEqual(['198.51.100.7'])
    expect(values(seen, 'x-forwarded-host')).toEqual(['outer.example'])
    expect(values(seen, 'x-request-id')).toEqual(['kept-1'])
    caller.close()
    await behind.stop()
  })

  it('allow.callers checks the address that the server determined, not a forged one', async () => {
    const tunnel = await connect({
      url: `wss://127.0.0.1:${pair.server.controlAddress?.port}`,
      token: () => pair.secrets.token('closed'),
      ca: pair.secrets.ca,
      proxy: '',
      target: createRouter({ routes: table() }),
      allowCallers: ['203.0.113.0/24'],
    })
    const caller = await Http1Caller.connect(pair.placeOf('closed'))
    const reply = await caller.ask({ path: '/', fields: FORGED })
    expect([reply.status, value(reply.fields, 'sallyport-error')]).toEqual([403, 'caller-not-allowed'])
    caller.close()
    await tunnel.close({ graceMs: 0 })
  })
})
