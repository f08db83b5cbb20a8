/** What a connection does if a session cannot even be created, which no server can bring about. */
import { EventEmitter } from 'node:events'
import { afterEach, expect, it } from 'vitest'
import { Backoff } from '../../client/dial/backoff.ts'
import type { Dialled } from '../../client/dial/dial.ts'
import type { ClientSession } from '../../client/session.ts'
import { SessionKeeper, type SessionKeeperOwner } from '../../client/session-keeper.ts'
import { logGuard } from '../../protocol/base/guard.ts'
import { noLogger } from '../../protocol/base/log.ts'
import { until } from '../support/until.ts'

let stop = new AbortController()
afterEach(() => {
  stop.abort()
  stop = new AbortController()
})

it.each([
  [0, 'the first one'],
  [1, 'one that is to replace an outdated one'],
])('if session %i throws (%s), its socket is ended, and another follows', async index => {
  const ended: number[] = []
  let dials = 0
  const sessions = new Map<number, ClientSession>()
  const owner: Partial<SessionKeeperOwner> = {
    signal: stop.signal,
    guard: logGuard(noLogger, 'failed'),
    logger: noLogger,
    machines: 1,
    dial: async () => {
      const id = dials++
      return {
        id,
        socket: Object.assign(new EventEmitter(), { terminate: () => ended.push(id) }),
      } as unknown as Dialled
    },
    isAlone: () => true,
    outdated: session => (session === sessions.get(0) && index > 0 ? 'it is outdated' : undefined),
    openSession: (dialled, _, listener) => {
      const { id } = dialled as unknown as { id: number }
      if (id === index) throw new Error('cannot be created')
      const session = { id, state: 'ready', drain: async () => {} } as unknown as ClientSession
      sessions.set(id, session)
      setImmediate(() => listener.onWelcome(session) && listener.onReady(session))
      return session
    },
    onConnected: () => {},
    onReconnecting: () => {},
  }
  const keeper = new SessionKeeper(0, owner as SessionKeeperOwner, new Backoff({ firstMs: 1, moveMs: 1 }))
  void keeper.run()
  await until(() => sessions.has(index + 1) && keeper.current === sessions.get(index + 1))
  expect(ended).toEqual([index])
})
