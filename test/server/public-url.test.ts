import { afterAll, expect, test } from 'vitest'
import { checkPublicUrl, publicUrl } from '../../server/public-url.ts'
import { type Pair, startPair } from '../support/pair.ts'
import { DOMAIN } from '../support/secrets.ts'

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

test('as given; one that does not fit into a welcome is left out', () => {
  expect(of({ url: 'https://*.b.example:444' })).toBe('https://demo.b.example:444')
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
