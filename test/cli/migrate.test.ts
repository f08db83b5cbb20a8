import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { sallyport } from './run.ts'

const FULL = `
serverAddr = "frp.example.com"
serverPort = 7000
user = "me"
auth.token = "a-secret-of-frp"
transport.proxyURL = "http://proxy.example.com:3128"
transport.tls.trustedCaFile = "ca.crt"
transport.poolCount = 5
log.level = "trace"
log.maxDays = 3

[[proxies]]
name = "shop"
type = "http"
localPort = 3000
subdomain = "Shop"
locations = ["/", "/api"]
hostHeaderRewrite = "shop.internal"
requestHeaders.set.x-from = "tunnel"
responseHeaders.set.server = "shop"
transport.useCompression = true
healthCheck.type = "tcp"

[[proxies]]
name = "other"
type = "http"
localIP = "10.0.0.7"
localPort = 8080
customDomains = ["other.tunnels.example.com", "www.elsewhere.example"]

[[proxies]]
name = "secure"
type = "https"
subdomain = "secure"
[proxies.plugin]
type = "https2http"
localAddr = "127.0.0.1:80"
crtPath = "server.crt"
keyPath = "server.key"

[[proxies]]
name = "ssh"
type = "tcp"
localPort = 22
remotePort = 6000

[[visitors]]
name = "visitor"
type = "stcp"
`

let folder: string
const file = (name: string) => join(folder, name)
const yaml = (name: string) => parse(readFileSync(file(`out/${name}`), 'utf8'))
const migrate = (name: string, text: string) => {
  writeFileSync(file(name), text)
  return sallyport(['migrate', 'frp', file(name), '--domain', 'tunnels.example.com', '--out', file('out')])
}

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'sallyport-migrate-'))
})
afterEach(() => rmSync(folder, { recursive: true }))

describe('frp', () => {
  test('a runtime for each name, whose routes and client settings these commands accept', async () => {
    const { code, notes } = await migrate('frpc.toml', FULL)
    expect([code, readdirSync(file('out')).sort()]).toEqual([
      0,
      ['other', 'secure', 'shop', 'www'].flatMap(name => [`${name}-routes.yaml`, `${name}.yaml`]),
    ])
    expect(yaml('shop.yaml')).toEqual({
      server: ['wss://connect.tunnels.example.com:443'],
      ...{ proxy: 'http://proxy.example.com:3128', log: { level: 'debug' } },
      ...{ token: { file: 'shop.token' }, routes: 'shop-routes.yaml' },
    })
    const target = {
      ...{ target: 'http://shop.internal:3000', host: 'target', headers: { set: { 'x-from': 'tunnel' } } },
      responseHeaders: { set: { server: 'shop' } },
    }
    expect(yaml('shop-routes.yaml')).toEqual({
      routes: [
        { name: 'shop', match: { path: '/' }, ...target },
        { name: 'shop-2', match: { path: '/api' }, ...target },
      ],
      resolve: { 'shop.internal:3000': '127.0.0.1:3000' },
    })
    expect(yaml('other-routes.yaml').routes).toEqual([
      { name: 'other', match: { path: '/' }, target: 'http://10.0.0.7:8080' },
    ])
    for (const name of ['shop', 'other', 'secure', 'www']) {
      const url = `https://${name}.tunnels.example.com/api/x`
      const tested = await sallyport(['route', 'test', url, '--routes', file(`out/${name}-routes.yaml`)])
      expect(tested).toMatchObject({ code: 0, notes: '' })
    }
    expect(notes).toContain('sallyport token create --key private.jwk --runtime shop --ttl 90d --out shop.token')
  })

  test('what is not converted is reported, key by key, and with no secret', async () => {
    const { notes } = await migrate('frpc.toml', FULL)
    for (const said of [
      'proxy ssh: not converted: raw TCP',
      'visitor visitor: not converted',
      'proxy shop: a path matches whole segments here',
      'proxy shop: healthCheck is not converted: ',
      'proxy shop: transport.useCompression is not converted: bytes pass unchanged',
      'proxy other: www.elsewhere.example is not RUNTIME.tunnels.example.com: callers use www.tunnels.example.com',
      'proxy secure: the server terminates TLS',
      'serverAddr frp.example.com is not converted: a client dials wss://connect.tunnels.example.com:443',
      'transport.poolCount is not converted: ',
      'transport.tls.trustedCaFile is not converted: it is the authority of frps',
      'log.maxDays is not converted',
      'user is not converted',
      'auth is not converted: each runtime has its own token',
    ]) {
      expect(notes).toContain(said)
    }
    expect(notes).not.toContain('a-secret-of-frp')
  })

  test('every key of a proxy is carried over or named', async () => {
    const proxy = { name: 'a', type: 'http', localPort: 1, subdomain: 'a' }
    const carried = new Set([...Object.keys(proxy), 'localIP', 'locations', 'customDomains'])
    for (const key of [
      'enabled',
      'routeByHTTPUser',
      'loadBalancer',
      'annotations',
      'toString',
      'whatever',
      'localIP',
    ]) {
      const config = { proxies: [{ ...proxy, [key]: key === 'localIP' ? '10.0.0.1' : { group: 'g' } }] }
      const { notes } = await migrate('frpc.json', JSON.stringify(config))
      expect([key, notes.includes(`proxy a: ${key} is not converted`)]).toEqual([key, !carried.has(key)])
      rmSync(file('out'), { recursive: true })
    }
  })

  test('every key is named with a reason, also inside the tables that are carried over', async () => {
    const set = { 'x-from': 'tunnel', 'x-list': ['a'] }
    const proxy = { name: 'a', type: 'http', subdomain: 'a', requestHeaders: { set, add: { 'x-more': '1' } } }
    const transport = { proxyURL: 'socks5://me:hidden@proxy.example.com:1080', tls: { certFile: 'me.pem' } }
    const config = { proxies: [proxy], transport, log: { to: 'x' }, udpPacketSize: 1500, whatever: 1 }
    const { code, notes, out } = await migrate('frpc.json', JSON.stringify(config))
    expect(yaml('a-routes.yaml').routes).toEqual([
      { name: 'a', match: { path: '/' }, target: 'http://127.0.0.1:80', headers: { set: { 'x-from': 'tunnel' } } },
    ])
    expect(yaml('a.yaml')).not.toHaveProperty('proxy')
    for (const key of [
      ...['proxy a: requestHeaders.set.x-list', 'proxy a: requestHeaders.add', 'transport.proxyURL', 'log.to'],
      ...['transport.tls.certFile', 'udpPacketSize', 'whatever'],
    ]) {
      expect(notes).toContain(`${key} is not converted: `)
    }
    expect(notes + out).not.toContain('hidden')
    expect(code).toBe(0)
  })

  test('what frp does not serve is not served here', async () => {
    const proxy = (name: string, more: object = {}) => ({ name, type: 'http', subdomain: name, ...more })
    const proxies = [proxy('on', { enabled: true }), proxy('off', { enabled: false }), proxy('left'), proxy('tls')]
    const odd = proxy('odd', { type: 'sse' })
    const config = { start: ['on', 'off', 'odd'], proxies: [...proxies, odd] }
    const { notes } = await migrate('frpc.json', JSON.stringify(config))
    expect(readdirSync(file('out')).sort()).toEqual(['on-routes.yaml', 'on.yaml'])
    for (const said of [
      ...['proxy off: not converted: it is switched off', 'proxy left: not converted: start leaves it out'],
      ...['proxy tls: not converted: start leaves it out', 'proxy odd: not converted: type sse'],
    ]) {
      expect(notes).toContain(said)
    }
    expect(notes).not.toContain('enabled is not converted')
  })

  test('two targets for one name: each request goes where its own proxy sent it', async () => {
    const proxy = (name: string, localIP: string, more: object = { hostHeaderRewrite: 'app.internal' }) => {
      return { name, type: 'http', subdomain: 'a', localIP, localPort: 80, locations: [`/${name}`], ...more }
    }
    const proxies = [proxy('one', '10.0.0.1'), proxy('two', '10.0.0.2'), proxy('three', 'app.internal', {})]
    const { notes } = await migrate('frpc.json', JSON.stringify({ proxies }))
    expect(yaml('a-routes.yaml')).toMatchObject({
      routes: [{ name: 'one', target: 'http://app.internal:80' }],
      resolve: { 'app.internal:80': '10.0.0.1:80' },
    })
    for (const name of ['two', 'three']) {
      expect(notes).toContain(
        `proxy ${name}: not converted: app.internal:80 of a.tunnels.example.com already leads to 10.0.0.1:80`,
      )
    }
    expect(yaml('a-routes.yaml').routes).toHaveLength(1)
  })

  test('hostHeaderRewrite: a target on localhost is dialled, one with a name is reported, and so is a different Host', async () => {
    const proxy = (name: string, localIP: string, localPort: number) => {
      return { name, type: 'http', subdomain: name, localIP, localPort, hostHeaderRewrite: 'app.internal' }
    }
    const proxies = [proxy('one', 'localhost', 80), proxy('two', '10.0.0.2', 8080), proxy('three', 'web', 80)]
    const { notes } = await migrate('frpc.json', JSON.stringify({ proxies }))
    expect(yaml('one-routes.yaml').resolve).toEqual({ 'app.internal:80': '127.0.0.1:80' })
    expect(notes.split('\n').filter(note => note.startsWith('proxy '))).toEqual([
      'proxy two: the target gets the Host app.internal:8080, with frp it was app.internal',
      'proxy three: not converted: hostHeaderRewrite needs an IP address here, and web:80 is a name',
    ])
  })

  test('a name outside of the domain is the host of a runtime, or a host of its own', async () => {
    const customDomains = ['tunnels.example.com', 'Hooks.Customer.example', '*.customer.example']
    const proxies = [{ name: 'a', type: 'http', customDomains }]
    const { notes } = await migrate('frpc.json', JSON.stringify({ proxies }))
    expect(notes.split('\n').filter(note => note.startsWith('proxy '))).toEqual([
      'proxy a: tunnels.example.com is not RUNTIME.tunnels.example.com: callers use tunnels.tunnels.example.com',
      'proxy a: Hooks.Customer.example is not RUNTIME.tunnels.example.com: callers use Hooks.tunnels.example.com, or Hooks.Customer.example as docs/hosts.md describes',
      'proxy a: not converted: *.customer.example does not make a runtime name',
    ])
  })

  test('two sites whose names begin alike do not become one', async () => {
    const proxy = (name: string, customDomains: string[], path: string) => {
      return { name, type: 'http', localPort: 80, customDomains, locations: [path] }
    }
    const proxies = [
      proxy('a', ['www.a.example', 'www.a2.example'], '/'),
      proxy('b', ['WWW.b.example'], '/b'),
      proxy('c', ['WWW.a.example'], '/c'),
      { name: 'd', type: 'http', localPort: 80, subdomain: 'www', locations: ['/d'] },
    ]
    const { notes } = await migrate('frpc.json', JSON.stringify({ proxies }))
    expect(yaml('www-routes.yaml').routes.map(({ name }: { name: string }) => name)).toEqual(['a', 'c'])
    expect(notes).toContain(
      'b: not converted: www.b.example would share the runtime www with www.a.example, www.a2.example',
    )
    expect(notes).toContain(
      'd: not converted: www.tunnels.example.com would share the runtime www with www.a.example, ',
    )
  })

  test('a domain with a port: clients dial it', async () => {
    writeFileSync(file('frpc.toml'), FULL)
    const domain = 'tunnels.example.com:8443'
    const { notes } = await sallyport(['migrate', 'frp', file('frpc.toml'), '--domain', domain, '--out', file('out')])
    expect(yaml('shop.yaml').server).toEqual(['wss://connect.tunnels.example.com:8443'])
    expect(notes).toContain('www.elsewhere.example is not RUNTIME.tunnels.example.com: ')
    expect(notes).toContain('`ca: PATH/ca.pem`')
  })

  test.each(['example.com:0', 'example.com:65536'])('an invalid port: %s', async domain => {
    writeFileSync(file('frpc.toml'), FULL)
    const ended = await sallyport(['migrate', 'frp', file('frpc.toml'), '--domain', domain, '--out', file('out')])
    expect([ended.code, ended.notes]).toEqual([2, expect.stringContaining('is not a port')])
    expect(readdirSync(folder)).toEqual(['frpc.toml'])
  })

  test.each(['two words', '*.example.com', 'wss://example.com', 'example.com:x', ''])(
    'an invalid domain: %j',
    async domain => {
      writeFileSync(file('frpc.toml'), FULL)
      const ended = await sallyport(['migrate', 'frp', file('frpc.toml'), '--domain', domain, '--out', file('out')])
      expect([ended.code, ended.out]).toEqual([2, ''])
      expect(ended.notes).toContain('expected a DNS name')
      expect(readdirSync(folder)).toEqual(['frpc.toml'])
    },
  )

  test('its files may contain what frpc.toml contained: nobody else can read them', async () => {
    await migrate('frpc.toml', FULL)
    const modes = readdirSync(file('out')).map(name => statSync(file(`out/${name}`)).mode & 0o777)
    expect(new Set(modes)).toEqual(new Set([0o600]))
  })

  test('two proxies for one host and path: the first is carried over, the second named', async () => {
    const proxy = (name: string, path: string) => ({ name, type: 'http', subdomain: 'a', locations: [path] })
    const proxies = [proxy('one', '/'), proxy('two', '/'), proxy('three', '/x')]
    const { notes } = await migrate('frpc.yaml', JSON.stringify({ proxies }))
    expect(notes).toContain('proxy two: not converted: one already has / of a.tunnels.example.com')
    expect(yaml('a-routes.yaml').routes.map(({ name }: { name: string }) => name)).toEqual(['one', 'three'])
  })

  test('what the routes of a runtime cannot have costs only its own proxy', async () => {
    const proxy = (name: string, path: string, more = {}) => ({
      name,
      type: 'http',
      subdomain: 'a',
      locations: [path],
      ...more,
    })
    const host = { requestHeaders: { set: { Host: 'a' } } }
    const proxies = [
      proxy('My Shop', '/'),
      proxy('网站', '/w'),
      proxy('网络', '/x'),
      proxy('no', '/n', host),
      proxy('only', '/', { ...host, subdomain: 'b' }),
    ]
    const { code, notes } = await migrate('frpc.yaml', JSON.stringify({ proxies }))
    expect([code, readdirSync(file('out')).sort()]).toEqual([0, ['a-routes.yaml', 'a.yaml']])
    expect(yaml('a-routes.yaml').routes.map(({ name }: { name: string }) => name)).toEqual([
      'My-Shop',
      'route',
      'route-2',
    ])
    expect(notes).toContain('proxy My Shop: its route is called My-Shop')
    expect(notes).toContain('proxy 网络: its route is called route-2')
    expect(notes).toMatch(/proxy no: not converted: headers\.set/)
  })

  test.each([
    [
      'a proxy with a password, which would be open',
      '[[proxies]]\ntype="http"\nsubdomain="a"\nhttpUser="u"',
      'none of its proxies can be converted',
    ],
    ['no TOML', 'this is = = none', 'Invalid TOML document'],
    ['a template', '{{- range $k, $v := parseNumberRangePair "1" }}', 'an frp template must be rendered first'],
    ['only TCP', '[[proxies]]\nname="ssh"\ntype="tcp"', 'none of its proxies can be converted'],
    [
      'no valid name for a runtime',
      '[[proxies]]\ntype="http"\nsubdomain="a_b"',
      'none of its proxies can be converted',
    ],
    [
      'a path that no route can have',
      '[[proxies]]\ntype="http"\nsubdomain="a"\nlocations=["~x"]',
      'proxy unnamed: not converted: match.path',
    ],
    [
      'an address with a path',
      '[[proxies]]\ntype="http"\nsubdomain="a"\nlocalIP="h/x"',
      'none of its proxies can be converted',
    ],
  ])('%s: refused with a reason, and nothing is written', async (_, text, reason) => {
    const { code, notes, out } = await migrate('frpc.toml', text)
    expect([code, out]).toEqual([3, ''])
    expect(notes.replaceAll("'", '’')).toContain(reason)
    expect(readdirSync(folder)).toEqual(['frpc.toml'])
  })

  test.each(['frpc.ini', 'frpc.conf'])("frp's own older format in %s: refused, and how to go on", async name => {
    const { code, notes } = await migrate(name, '[common]\nserver_addr = frp.example.com')
    expect([code, notes]).toEqual([3, expect.stringContaining('first write the file in TOML')])
  })

  test('an existing file is overwritten only with --force', async () => {
    expect((await migrate('frpc.toml', FULL)).code).toBe(0)
    const again = await migrate('frpc.toml', FULL)
    expect([again.code, again.notes]).toEqual([3, expect.stringContaining('already exists')])
  })
})
