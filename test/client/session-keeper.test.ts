/** What a connection does if a session cannot even be created, which no server can bring about, and while it waits. */
import { EventEmitter } from 'node:events'
import { afterEach, expect, it } from 'vitest'
import { Backoff } from '../../client/dial/backoff.ts'
import type { Dialled } from '../../client/dial/dial.ts'
import { Unreachable } from '../../client/dial/dialler.ts'
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
  const keeper = keeperOf(owner, new Backoff({ firstMs: 1, moveMs: 1 }))
  void keeper.run()
  await until(() => sessions.has(index + 1) && keeper.current === sessions.get(index + 1))
  expect(ended).toEqual([index])
})

/** A connection of a client whose `owner` does the rest. */
function keeperOf(owner: Partial<SessionKeeperOwner>, backoff: Backoff): SessionKeeper {
  const parts = { signal: stop.signal, guard: logGuard(noLogger, 'failed'), logger: noLogger, machines: 1, ...owner }
  return new SessionKeeper(0, parts as SessionKeeperOwner, backoff)
}

const REFUSED = { status: 401, requestId: undefined }

it.each([
  ['a server that refused it', { refused: REFUSED }, true, false],
  ['a proxy that refused its credentials', { wrongLogin: true }, true, true],
  ['anything else', {}, false, true],
])('after %s, it waits long (%o: %s), and a changed network ends the wait: %s', async (_, why, isSlow, isEnded) => {
  let dials = 0
  const waits: number[] = []
  const owner: Partial<SessionKeeperOwner> = {
    dial: async () => {
      dials++
      throw new Unreachable('no', why)
    },
    onRefused: () => {},
    onReconnecting: (_connection, waitMs) => waits.push(waitMs),
  }
  const limits = { firstMs: 4000, refusedMs: 20_000 }
  const keeper = keeperOf(owner, new Backoff(limits, () => 0.9))
  void keeper.run()
  await until(() => waits.length === 1)
  expect(waits[0]! > 5000).toBe(isSlow)
  await new Promise(setImmediate)
  keeper.networkChanged()
  await new Promise(setImmediate)
  expect(dials).toBe(isEnded ? 2 : 1)
  if (!isEnded) keeper.retry()
  await until(() => dials === 2)
})
