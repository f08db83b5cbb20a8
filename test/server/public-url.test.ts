import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test, vi } from 'vitest'
import { noLogger } from '../../protocol/base/log.ts'
import { CertificateFolder } from '../../server/certificate-folder.ts'
import { checkPublicUrl, publicUrl } from '../../server/public-url.ts'
import type { Server } from '../../server/server.ts'
import { type Pair, startPair } from '../support/pair.ts'
import { lastingPort } from '../support/ports.ts'
import { DOMAIN } from '../support/secrets.ts'
import { dial, HOST, makeWorld, startServer, type TestClient } from './fixture.ts'

const pairs: Pair[] = []
afterAll(() => Promise.all(pairs.map(pair => pair.stop())))

const of = (options: Parameters<typeof publicUrl>[0], port?: number, domain = 'a.example') =>
  publicUrl(options, domain === '' ? [] : [domain], port, 'demo')

test('from the listener: scheme, domain and any port that is not the default', () => {
  expect(of({ tls: {} }, 8443)).toBe('https://demo.a.example:8443')
  expect(of({ tls: {} }, 443)).toBe('https://demo.a.example')
  expect(of({}, 8080)).toBe('http://demo.a.example:8080')
  expect(of({ plaintext: true }, 8080)).toBe('https://demo.a.example')
  expect([of(undefined, 80), of({}, undefined), of({}, 80, '')]).toEqual([undefined, undefined, undefined])
})

test('before the listener has a port: from the one that it will have, if that is known', () => {
  expect(of({ port: 8080 })).toBe('http://demo.a.example:8080')
  expect(of({ port: 8080 }, 8081)).toBe('http://demo.a.example:8081')
  expect(of({ port: 8080, fd: 3, plaintext: true })).toBe('https://demo.a.example')
  expect([of({ port: 0 }), of({ port: 8080, fd: 3 })]).toEqual([undefined, undefined])
})

test('as given; one that does not fit into a welcome is left out', () => {
  expect(of({ url: 'https://*.b.example:444' })).toBe('https://demo.b.example:444')
  checkPublicUrl('https://*.my_zone.example:444')
  const label = 'x'.repeat(62)
  expect(of({ tls: {} }, 443, `${label}.${label}.${label}.${label}.example`)).toBeUndefined()
  for (const bad of ['https://b.example', 'https://*.b.example/x', 'ftp://*.b', 'https://*.b@c', 'https://*.b\n'])
    expect(() => checkPublicUrl(bad), bad).toThrow(TypeError)
})

test('the client gets it from the welcome', async () => {
  const pair = await startPair({ target: () => new Response('hello') })
  pairs.push(pair)
  expect(pair.tunnel.url).toBe(`https://demo.${DOMAIN}:${pair.server.publicAddress!.port}`)
})

test('a client that connects before callers can gets it, too', async () => {
  const { certificate: cert, key } = (await makeWorld()).server
  const early = Promise.withResolvers<TestClient>()
  const { open } = CertificateFolder
  const spy = vi.spyOn(CertificateFolder, 'open').mockImplementation(async (...args) => {
    await early.promise
    return open.apply(CertificateFolder, args)
  })
  const info = (fields: object, message: string) => {
    const { name, address } = fields as { name?: string; address: string }
    const [host, port] = String(address).split(':') as [string, string]
    const listening = { controlAddress: { host, port: Number(port) } } as Server
    if (message === 'listening' && name === 'control') dial(listening).then(early.resolve, early.reject)
  }
  const port = await lastingPort()
  const folder = await mkdtemp(join(tmpdir(), 'sallyport-url-'))
  const tls = { cert, key }
  const server = await startServer({ public: { port, tls, tlsFolder: folder }, logger: { ...noLogger, info } })
  spy.mockRestore()
  const { messages } = await early.promise
  expect(messages.find(({ type }) => type === 'welcome')).toMatchObject({ url: `https://${HOST}:${port}` })
  await server.close({ graceMs: 0 })
  await rm(folder, { recursive: true })
})
