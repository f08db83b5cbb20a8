import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, it } from 'vitest'
import { listen } from '../../protocol/http/listener.ts'
import { createForwarder } from '../../router/forward.ts'
import { get } from './support.ts'

it('passes everything unchanged to one target', async () => {
  const http = createServer((request, response) => response.end(request.url)).listen(0, '127.0.0.1')
  await once(http, 'listening')
  const forwarder = createForwarder(new URL(`http://127.0.0.1:${(http.address() as AddressInfo).port}`))
  const listener = await listen({ port: 0, handler: forwarder.handler, trustedProxies: [] })
  expect(await get(listener.address.port, '/a%2Fb//c?d')).toMatch(/\r\n\r\n\/a%2Fb\/\/c\?d$/)
  expect(forwarder.stats()).toEqual({ targets: 1, connections: 1, idle: 1 })
  await listener.close({ graceMs: 0 })
  forwarder.close()
  expect(forwarder.stats()).toEqual({ targets: 0, connections: 0, idle: 0 })
  http.close()
})

it('refuses an unusable target at once', () => {
  expect(() => createForwarder('http://a/b')).toThrow(
    new TypeError('target: must be only host and port; a path is set with rewrite'),
  )
  expect(() => createForwarder('ws://a')).toThrow(new TypeError('target: must begin with http://, https:// or h2c://'))
  expect(() => createForwarder('http://a', { tls: { insecure: true } })).toThrow(
    new TypeError('tls: only a target that begins with https:// has TLS'),
  )
})
