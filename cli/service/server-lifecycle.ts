/** What an operator may see and do on a running server, by hand: sessions, runtimes, revocations, the drain of it all. */
import type { Actions, Body } from '../../admin/actions.ts'
import type { DrainOptions, Revocation, Server, SessionInfo } from '../../server/index.ts'

export const VIEWS = ['/sessions', '/runtimes', '/revocations'] as const

/** A session as operators see it; times are ISO 8601. */
export function describeSession({ connectedAt, tokenEndsAt, ...session }: SessionInfo) {
  return {
    ...session,
    connectedSince: new Date(connectedAt).toISOString(),
    tokenEnds: new Date(tokenEndsAt).toISOString(),
  }
}

export function serverViews(server: Server): Record<(typeof VIEWS)[number], () => unknown> {
  return {
    '/sessions': () => ({ sessions: server.sessions().map(describeSession) }),
    '/runtimes': () => ({ runtimes: describeRuntimes(server.sessions()) }),
    '/revocations': () => ({ revocations: server.revocations() }),
  }
}

/** One row for each runtime that has a session here. */
function describeRuntimes(sessions: readonly SessionInfo[]) {
  const rows = new Map<string, ReturnType<typeof emptyRow>>()
  for (const session of sessions) {
    const row = rows.get(session.runtime) ?? emptyRow(session)
    rows.set(session.runtime, row)
    row.sessions++
    row.streams += session.streams
    row.bufferedBytes += session.bufferedBytes
    row.instances.add(session.instance)
    if (session.active) row.active = session.instance
    row.epoch = Math.max(row.epoch, session.epoch)
  }
  return [...rows.values()].map(({ instances, ...row }) => ({ ...row, instances: instances.size }))
}

function emptyRow({ runtime, replica }: SessionInfo) {
  const active: string | undefined = undefined
  return {
    runtime,
    replica,
    sessions: 0,
    instances: new Set<string>(),
    active: active as string | undefined,
    epoch: 0,
    streams: 0,
    bufferedBytes: 0,
  }
}

/** Each answers with what it did, replica by replica. */
export function serverActions(server: Server): Actions {
  const { replica } = server.stats()
  const here = (done: object) => ({ replicas: [{ replica, ...done }] })
  return {
    '/sessions/drain': body => here({ sessions: drainSessions(server, body) }),
    '/sessions/close': body => here({ sessions: closeSessions(server, body) }),
    '/revoke': async body => here(await server.revoke(readRevocation(body))),
    '/drain': body => {
      const sessions = server.sessions().map(({ id }) => id)
      void server.drain({ graceMs: number(body, 'graceMs') })
      return here({ sessions })
    },
  }
}

function drainSessions(server: Server, body: Body): string[] {
  const options: DrainOptions = {
    reason: text(body, 'reason'),
    afterMs: number(body, 'afterMs'),
    graceMs: number(body, 'graceMs'),
  }
  return chosen(server, body).filter(id => server.drainSession(id, options))
}

function closeSessions(server: Server, body: Body): string[] {
  return chosen(server, body).filter(id => server.closeSession(id, text(body, 'reason')))
}

function chosen(server: Server, body: Body): string[] {
  const [session, runtime] = [text(body, 'session'), text(body, 'runtime')]
  if ((session === undefined) === (runtime === undefined)) throw new TypeError('give a session or a runtime')
  const fits = (info: SessionInfo) => (session === undefined ? info.runtime === runtime : info.id === session)
  return server
    .sessions()
    .filter(fits)
    .map(({ id }) => id)
}

function readRevocation(body: Body): Revocation {
  return {
    tokenId: text(body, 'tokenId'),
    runtime: text(body, 'runtime'),
    issuedBefore: number(body, 'issuedBefore'),
    until: number(body, 'until'),
  }
}

function text(body: Body, name: string): string | undefined {
  const value = body[name]
  if (value === undefined || (typeof value === 'string' && value !== '' && value.length <= 256)) return value
  throw new TypeError(`${name} is a text of 1 to 256 characters`)
}

function number(body: Body, name: string): number | undefined {
  const value = body[name]
  if (value === undefined || (typeof value === 'number' && Number.isFinite(value) && value >= 0)) return value
  throw new TypeError(`${name} is a number from 0`)
}
