import { once } from 'node:events'
import { createServer as createHttpServer, type RequestListener } from 'node:http'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { expect, test } from 'vitest'
import type { HttpRequest } from '../../../protocol/exchange.ts'
import { ForwardAuthCheck } from '../../../server/access/forward-auth.ts'
import { until } from '../../support/until.ts'

test('a connection that is still being opened ends with the check', async () => {
  // A TLS server that says nothing.
  const accepted: Socket[] = []
  const service = createServer(socket => void accepted.push(socket.on('error', () => {}).resume()))
  await once(service.listen(0, '127.0.0.1'), 'listening')
  const { port } = service.address() as AddressInfo
  const check = new ForwardAuthCheck({ url: `https://127.0.0.1:${port}/`, timeoutMs: 600_000 })
  const caller = { address: '127.0.0.1', scheme: 'http', host: '' }
  const asked = check.check({ method: 'GET', path: '/', caller } as HttpRequest, [], new AbortController().signal)
  asked.catch(() => {})
  await until(() => accepted.length === 1)
  const closed = once(accepted[0]!, 'close')
  check.close()
  await expect(asked).rejects.toThrow()
  await closed
  service.close()
})

const ROUNDS = 20

/** A service that says who may call, and the question about one caller. */
async function serving(answer: RequestListener) {
  let connections = 0
  const service = createHttpServer(answer)
  service.on('connection', () => {
    connections++
  })
  await once(service.listen(0, '127.0.0.1'), 'listening')
  const { port } = service.address() as AddressInfo
  const check = new ForwardAuthCheck({ url: `http://127.0.0.1:${port}/` })
  const ask = (signal: AbortSignal, address = '127.0.0.1') => {
    const caller = { address, scheme: 'http', host: '' }
    return check.check({ method: 'GET', path: '/', caller, headers: [] as string[] } as HttpRequest, [], signal)
  }
  const close = () => {
    check.close()
    service.close()
    return connections
  }
  return { service, ask, close }
}

test('callers that leave while they are asked about cost no connection', async () => {
  const answers: (() => void)[] = []
  const { ask, close } = await serving((_, response) => void answers.push(() => response.end()))
  for (let i = 0; i < ROUNDS; i++) {
    const gone = new AbortController()
    const asked = ask(gone.signal)
    asked.catch(() => {})
    await until(() => answers.length > 0)
    gone.abort()
    answers.pop()!()
    await expect(asked).rejects.toThrow('aborted')
  }
  expect(close()).toBeLessThan(ROUNDS / 2)
})

test.each([200, 500])('a service that sends the body of a %s behind the head keeps its connection', async status => {
  let asked: Promise<unknown> | undefined
  const { service, ask, close } = await serving(async (_, response) => {
    response.writeHead(status).flushHeaders()
    await asked
    response.end('y'.repeat(60_000))
  })
  for (let i = 0; i < ROUNDS; i++) {
    const { promise, resolve } = Promise.withResolvers<void>()
    asked = promise
    const sent = once(service, 'request').then(([, response]) => once(response, 'finish'))
    const said = ask(new AbortController().signal)
    if (status === 200) expect(await said).toBe(undefined)
    else await expect(said).rejects.toThrow('500')
    resolve()
    await sent
  }
  // The service has sent it a moment before we have it all.
  expect(close()).toBeLessThan(ROUNDS / 2)
})

test.each([200, 500])('one network takes half of the connections while the body of a %s is late', async status => {
  let isLate = true
  let asked = 0
  const { ask, close } = await serving((_, response) => {
    asked++
    response.writeHead(status).flushHeaders()
    if (!isLate) response.end()
  })
  const { signal } = new AbortController()
  for (let i = 0; i < 200; i++) void ask(signal, '192.0.2.1').catch(() => {})
  await until(() => asked >= 64)
  isLate = false
  const said = ask(signal, '198.51.100.1')
  if (status === 200) expect(await said).toBe(undefined)
  else await expect(said).rejects.toThrow('500')
  expect(asked).toBe(65)
  expect(close()).toBe(65)
})
