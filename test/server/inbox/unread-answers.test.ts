/** A receiver's answer that has arrived whole, and that the webhook's sender reads late or not at all. */

import { once } from 'node:events'
import { type ClientHttp2Session, type ClientHttp2Stream, connect, constants } from 'node:http2'
import { afterEach, expect, test } from 'vitest'
import type { ServerOptions } from '../../../server/options.ts'
import { until } from '../../support/until.ts'
import { answer, DOMAIN } from '../fixture.ts'
import { type Ground, makeGround, RULE } from './fixture.ts'

/** Fits into the first window of a session's stream. */
const ANSWER_BYTES = 60_000

let ground: Ground
const senders: ClientHttp2Session[] = []
afterEach(async () => {
  for (const sender of senders.splice(0)) sender.destroy()
  await ground.close()
})

async function begin(limits: ServerOptions['limits'] = {}): Promise<void> {
  ground = await makeGround({}, { limits })
  await ground.connect()
  ground.receiver.says = () => undefined
}

/** Its sender takes no answer. */
function send(): ClientHttp2Stream {
  const sender = connect(`http://127.0.0.1:${ground.server.publicAddress!.port}`, {
    settings: { initialWindowSize: 0 },
  })
  senders.push(sender)
  const stream = sender.request({
    ':method': 'POST',
    ':path': `/webhooks/${ground.receiver.got.length}`,
    ':authority': `demo.${DOMAIN}`,
  })
  stream.on('error', () => {})
  stream.end('hook')
  return stream
}

/** Its answer waits at the server, whole. */
async function unread(bytes = ANSWER_BYTES): Promise<{ sender: ClientHttp2Session; stream: ClientHttp2Stream }> {
  const { got } = ground.receiver
  const before = got.length
  const stream = send()
  await until(() => got.length > before)
  answer(got[before]!.response, 200, 'x'.repeat(bytes))
  await once(stream, 'response')
  await until(() => ground.server.stats().streams === 0)
  return { sender: senders.at(-1)!, stream }
}

test.each<[string, (sender: ClientHttp2Session, stream: ClientHttp2Stream) => void]>([
  ['takes it late', (sender, stream) => sender.settings({ initialWindowSize: 100_000 }, () => stream.resume())],
  ['goes away', sender => sender.destroy()],
  ['cancels it', (_sender, stream) => stream.close(8)],
])('is held until its sender %s', async (_manner, act) => {
  await begin()
  const { sender, stream } = await unread()
  expect(ground.server.stats().bufferedBytes).toBe(ANSWER_BYTES)
  act(sender, stream)
  await once(stream, 'close')
  await until(() => ground.server.stats().bufferedBytes === 0)
})

test('is dropped if there is no room for it, and its sender is cut', async () => {
  await begin({ processBufferBytes: 2.5 * ANSWER_BYTES })
  const held = [await unread(), await unread()]
  await unread(ANSWER_BYTES / 2 + 1)
  await until(() => held.some(({ stream }) => stream.rstCode === constants.NGHTTP2_INTERNAL_ERROR))
})

test('the 202 of a stored webhook: the attempt under way goes on, and its lane with it', async () => {
  ground = await makeGround({}, { public: { port: 0, limits: { stalledMs: 200 } } })
  await ground.connect([{ ...RULE, answerWithinMs: 20 }])
  const { got } = ground.receiver
  ground.receiver.says = (_, index) => (index === 0 ? undefined : 200)
  const stream = send()
  await once(stream, 'response')
  await once(stream, 'close')
  expect(stream.rstCode).toBe(constants.NGHTTP2_CANCEL)
  answer(got[0]!.response, 200, '')
  await until(() => ground.server.stats().inbox!.messages.waiting === 0)
  expect(got.length).toBe(1)
})
