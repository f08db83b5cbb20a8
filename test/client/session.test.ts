import { once } from 'node:events'
import { expect, it, vi } from 'vitest'
import { WebSocket } from 'ws'
import { ClientSession, type SessionOwner } from '../../client/session.ts'
import { noLogger } from '../../protocol/base/log.ts'
import type { Hello } from '../../protocol/wire/control.ts'
import { memoryPair } from '../../protocol/wire/transport-memory.ts'
import { webSocketTransport } from '../../protocol/wire/transport-websocket.ts'
import { FakeServer } from './fake-server.ts'

const hello: Hello = {
  type: 'hello',
  minor: 0,
  software: 'test/1',
  instance: 'one',
  startedMs: 1,
  lastEpoch: 0,
  connection: 0,
  limits: { windowBytes: 65_536, streams: 100 },
  features: [],
  cors: [],
}

const owner: SessionOwner = {
  logger: noLogger,
  session: {},
  tracing: undefined,
  accept() {},
  onWelcome: () => true,
  onReady() {},
  onStanding() {},
  onLeave() {},
  onNotice() {},
  onCheck() {},
  onReauth() {},
  onClosed() {},
}

it('ends if the server does not answer its hello', () => {
  vi.useFakeTimers()
  try {
    const closed: string[] = []
    const onClosed = (_session: ClientSession, reason: string) => void closed.push(reason)
    const [ours] = memoryPair()
    const session = new ClientSession(ours, undefined, hello, { ...owner, onClosed })
    vi.advanceTimersByTime(9_999)
    expect([session.state, closed]).toEqual(['hello', []])
    vi.advanceTimersByTime(1)
    expect([session.state, closed]).toEqual(['closed', ['the server did not answer hello in time']])
  } finally {
    vi.useRealTimers()
  }
})

it('ends all its drains when one of them ends it, whatever time the others had', async () => {
  const server = await FakeServer.listen()
  const socket = new WebSocket(server.url)
  await once(socket, 'open')
  const ready = Promise.withResolvers<void>()
  const session = new ClientSession(webSocketTransport(socket), undefined, hello, {
    ...owner,
    onReady: () => ready.resolve(),
  })
  const peer = await server.serve()
  await ready.promise
  const drains = [session.drain('moved to another replica', 600_000), session.drain('the client closes', 60_000)]
  await peer.receive('drain')
  peer.send({ type: 'drained', lastStream: 0 })
  await Promise.all(drains)
  expect(session.state).toBe('closed')
  await server.close()
})
