import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
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
  test('a runtime for each name, whose routes and client are what these commands take', async () => {
    const { code, notes } = await migrate('frpc.toml', FULL)
    expect([code, readdirSync(file('out')).sort()]).toEqual([
      0,
      ['other', 'secure', 'shop', 'www'].flatMap(name => [`${name}-routes.yaml`, `${name}.yaml`]),
    ])
    expect(yaml('shop.yaml')).toEqual({
      server: ['wss://connect.tunnels.example.com:443'],
      ...{ proxy: 'http://proxy.example.com:3128', ca: ['ca.crt'], log: { level: 'debug' } },
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

  test('what is not carried is said, key by key, and no secret with it', async () => {
    const { notes } = await migrate('frpc.toml', FULL)
    for (const said of [
      'proxy ssh: not carried: raw TCP',
      'visitor visitor: not carried',
      'proxy shop: a path matches whole segments here',
      'proxy shop: healthCheck is not carried: ',
      'proxy shop: transport.useCompression is not carried: bytes pass as they are',
      'proxy other: www.elsewhere.example is not under tunnels.example.com: callers use www.tunnels.example.com',
      'proxy secure: the server ends TLS',
      'serverAddr frp.example.com is not carried: a client dials wss://connect.tunnels.example.com:443',
      'transport.poolCount is not carried: ',
      'log.maxDays is not carried',
      'user is not carried',
      'auth is not carried: a runtime has a token of its own',
    ]) {
      expect(notes).toContain(said)
    }
    expect(notes).not.toContain('a-secret-of-frp')
  })

  test('every key of a proxy is carried or named', async () => {
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
      expect([key, notes.includes(`proxy a: ${key} is not carried`)]).toEqual([key, !carried.has(key)])
      rmSync(file('out'), { recursive: true })
    }
  })

  test('two proxies of one host and path: the first is carried, the second named', async () => {
    const proxy = (name: string, path: string) => ({ name, type: 'http', subdomain: 'a', locations: [path] })
    const proxies = [proxy('one', '/'), proxy('two', '/'), proxy('three', '/x')]
    const { notes } = await migrate('frpc.yaml', JSON.stringify({ proxies }))
    expect(notes).toContain('proxy two: not carried: one has / of a.tunnels.example.com already')
    expect(yaml('a-routes.yaml').routes.map(({ name }: { name: string }) => name)).toEqual(['one', 'three'])
  })

  test.each([
    [
      'a proxy with a password, which would be open',
      '[[proxies]]\ntype="http"\nsubdomain="a"\nhttpUser="u"',
      'no proxy of',
    ],
    ['no TOML', 'this is = = none', 'Invalid TOML document'],
    ['a template', '{{- range $k, $v := parseNumberRangePair "1" }}', 'a template of frp’s is to be filled in'],
    ['only TCP', '[[proxies]]\nname="ssh"\ntype="tcp"', 'no proxy of'],
    ['no name of a runtime', '[[proxies]]\ntype="http"\nsubdomain="a_b"', 'no proxy of'],
    [
      'a path that no route can have',
      '[[proxies]]\ntype="http"\nsubdomain="a"\nlocations=["~x"]',
      'would not be valid',
    ],
    ['an address with a path', '[[proxies]]\ntype="http"\nsubdomain="a"\nlocalIP="h/x"', 'no proxy of'],
  ])('%s: refused with a reason, and nothing is written', async (_, text, reason) => {
    const { code, notes, out } = await migrate('frpc.toml', text)
    expect([code, out]).toEqual([3, ''])
    expect(notes.replaceAll("'", '’')).toContain(reason)
    expect(readdirSync(folder)).toEqual(['frpc.toml'])
  })

  test('a file that exists is overwritten with --force alone', async () => {
    expect((await migrate('frpc.toml', FULL)).code).toBe(0)
    const again = await migrate('frpc.toml', FULL)
    expect([again.code, again.notes]).toEqual([3, expect.stringContaining('exists and is not overwritten')])
  })
})
