/** security.md, P2: an answer to an error that itself cannot be sent does not lead to another answer. */
import { connect } from 'node:http2'
import { expect, test } from 'vitest'
import { SallyportError } from '../../protocol/base/errors.ts'
import { type Listener, listen } from '../../protocol/http/listener.ts'
import { call, recorder, type Seen } from './http/http1/raw.ts'

/** Over HTTP/1.1 the connection ends; over HTTP/2 the stream is reset. */
const CALLERS: Record<string, (port: number) => Promise<string>> = {
  'HTTP/1.1': async port => {
    const peer = await call(port)
    peer.send('GET / HTTP/1.1\r\nHost: a\r\nOrigin: https://x.example\r\n\r\n')
    return peer.end()
  },
  'HTTP/2': async port => {
    const session = connect(`http://127.0.0.1:${port}`)
    const stream = session.request({ ':path': '/', ':authority': 'a', origin: 'https://x.example' })
    stream.on('error', () => {})
    await new Promise(resolve => stream.once('close', resolve))
    session.destroy()
    return stream.rstCode === 0 ? 'an answer' : ''
  },
}

const FAULTS: Record<string, (seen: Seen) => void> = {
  'that the handler gives': ({ response }) => response.responseAbort(new SallyportError('no-route')),
  'in place of a head that cannot be sent': ({ response }) =>
    response.responseHead({ status: 200, headers: ['x', 'a\nb'], bodyBytes: 0 }),
  'in place of a body without a head': ({ response }) => response.responseData(Buffer.from('x')),
  'in place of an end without a head': ({ response }) => response.responseEnd([]),
}

async function startFaulty(answer: (seen: Seen) => void): Promise<Listener> {
  const { handler } = recorder(answer)
  // No such policy passes a configuration's checks.
  return listen({ port: 0, handler, corsOf: () => ({ origins: ['*'], exposeHeaders: ['a\nb'] }) })
}

test.each(Object.keys(CALLERS).flatMap(way => Object.keys(FAULTS).map(fault => [way, fault] as const)))(
  'P2: %s: an error %s',
  async (way, fault) => {
    const listener = await startFaulty(FAULTS[fault]!)
    expect(await CALLERS[way]!(listener.address.port)).toBe('')
    await listener.close({ graceMs: 0 })
  },
)

test.each(['\x01', '\x7f', '\xff'])('P2: an origin that is no field value is refused: %j', async odd => {
  const { handler } = recorder(() => {})
  const listener = await listen({ port: 0, handler, corsOf: () => ({ origins: ['*'], credentials: true }) })
  const peer = await call(listener.address.port)
  peer.send(Buffer.from(`GET / HTTP/1.1\r\nHost: a b\r\nOrigin: http://a${odd}b\r\n\r\n`, 'latin1'))
  expect(await peer.end()).toMatch(/^HTTP\/1\.1 400 /)
  await listener.close({ graceMs: 0 })
})
