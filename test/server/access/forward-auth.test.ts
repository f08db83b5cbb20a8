import { once } from 'node:events'
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
